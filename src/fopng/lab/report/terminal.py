"""The tables of a report for the terminal."""

from collections.abc import Iterable

from fopng.core.extras import from_extra
from fopng.lab.report.lines import Line
from fopng.lab.report.summary import summarise
from fopng.lab.report.words import encodable, margin, percent, plain
from fopng.lab.runs.result import RunResult

with from_extra("lab"):
    from rich import box
    from rich.table import Table
    from rich.text import Text

COLUMNS = ("accuracy\n%", "68 %", "95 %", "forget-\nting %", "removed\n%", "seconds", "seeds")


def result_tables(results: Iterable[RunResult]) -> list[Table]:
    """A table for each set of comparable runs, for `rich.console.Console.print`."""
    tables = []
    for panel in summarise(results):
        title, details = (
            Text(encodable(words)) for words in (panel.title, " · ".join((panel.condition, *panel.details)))
        )
        table = Table(title=title, caption=details, box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        table.add_column("method", overflow="fold", min_width=16)
        for name in COLUMNS:
            table.add_column(name, justify="right", no_wrap=True)
        for line in panel.lines:
            table.add_row(*_cells(line))
        tables.append(table)
    return tables


def _cells(line: Line) -> list[Text | str]:
    # A name is a text, never markup: brackets in it are brackets.
    label = Text(encodable(line.label))
    numbers = [percent(line.accuracy), margin(line.accuracy, 0.68), margin(line.accuracy, 0.95)]
    counts = f"{line.accuracy.count}/{len(line.seeds)}" if line.accuracy.missing else str(line.accuracy.count)
    return [label, *numbers, percent(line.forgetting), percent(line.removed), plain(line.seconds.mean), counts]
