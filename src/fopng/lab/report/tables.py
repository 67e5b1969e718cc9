"""The tables of a report: means over seeds with intervals, and who leads. For the page, Markdown and the terminal."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

import pandas as pd

from fopng.core.extras import from_extra
from fopng.lab.report import words
from fopng.lab.report.sections import FAMILIES, Section, sections_of
from fopng.lab.runs.command import command_of
from fopng.lab.runs.result import RunResult
from fopng.lab.runs.scores import Estimate, Score, holm, paired_difference, scores_of
from fopng.lab.storage import atomic

if TYPE_CHECKING:
    from rich.table import Table as RichTable

LEVEL = 0.05
"""How often, among all comparisons of a family, one may be called a difference that is none."""

BEST, LEVEL_WITH, BEHIND, UNDECIDED = "best", "level", "behind", "undecided"
MARKS = {BEST: "★", LEVEL_WITH: "≈"}

READING = (
    "Means over seeds, with half widths of Student's t intervals (95 % where it is not said). ★: better than every "
    "other method of its family; ≈: not told apart from the best mean (paired over seeds, t tests at 95 % with Holm's "
    "correction). One seed earns no mark, and a method that lost runs is never best."
)


@final
@dataclass(frozen=True)
class Cell:
    """One number of a table, as text, and as a value to sort by."""

    text: str
    value: float | str | None = None
    margin: str = ""
    mark: str = ""


@final
@dataclass(frozen=True)
class Row:
    """The cells of one line, and whose they are."""

    cells: tuple[Cell, ...]
    method: str
    label: str
    group: str = ""
    """A heading over this row and those after it."""


@final
@dataclass(frozen=True)
class Table:
    """A table of words and numbers; its first column names the rows."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str = ""
    wide: tuple[str, ...] = ()
    """Columns of words."""


@final
@dataclass(frozen=True)
class Lead:
    """Who leads a family in a comparison, by how much, and what it costs."""

    family: str
    label: str
    accuracy: Estimate
    mark: str
    next: str
    """The line with the second best mean; empty where there is none."""
    ahead: Estimate
    """The leader's advantage over it, seed by seed."""
    level: tuple[str, ...]
    """The lines that the leader is not told apart from."""
    seconds: float
    plain_seconds: float
    """Those of plain SGD in the same comparison; NaN where it was not run."""
    memory: float


def over_seeds(rows: pd.DataFrame, column: str, by: str | list[str] = "label") -> "pd.Series[Estimate]":
    """The estimate of a column for each group of rows, in the order of the rows."""
    return rows.groupby(by, sort=False, dropna=False)[column].agg(lambda values: Estimate.of(list(values)))


def standings(rows: pd.DataFrame) -> dict[str, tuple[str, Estimate]]:
    """How each line of one family stands, and how far behind the leader it is, paired over seeds.

    The leader has the highest mean, among those that lost no run if there are such. It is best only where it is ahead of
    every rival with a score, by t tests over the seeds that both have, with Holm's correction.
    """
    scores = {
        str(label): {int(seed): value for seed, value in zip(some["seed"], some["final_accuracy"], strict=True)}
        for label, some in rows.assign(final_accuracy=_or_none(rows["final_accuracy"])).groupby("label", sort=False)
    }
    means = {label: Estimate.of(list(values.values())) for label, values in scores.items()}
    found = {label: (UNDECIDED, Estimate.of([])) for label in scores}
    there = [label for label, mean in means.items() if mean.count]
    if not there:
        return found
    leader = max(there, key=lambda label: (means[label].missing == 0, means[label].mean))
    behind = {label: paired_difference(scores[leader], scores[label]) for label in there if label != leader}
    decided = [label for label, difference in behind.items() if difference.count > 1]
    refuted = dict(zip(decided, holm([behind[label].p_value for label in decided], LEVEL), strict=True))
    for label, difference in behind.items():
        sure = refuted.get(label)
        mark = UNDECIDED if sure is None else BEHIND if sure and difference.mean > 0 else LEVEL_WITH
        found[label] = (mark, difference)
    marks = {found[label][0] for label in behind}
    best = marks == {BEHIND} and means[leader].missing == 0
    found[leader] = (UNDECIDED if marks <= {UNDECIDED} else BEST if best else LEVEL_WITH, Estimate.of([]))
    return found


def leads(section: Section) -> list[Lead]:
    """Who leads each family of a comparison."""
    found = []
    for family, rows in section.frame.groupby("family", sort=False):
        marks = standings(rows)
        accuracy = over_seeds(rows, "final_accuracy")
        if family == "joint" or not (ranked := [label for label in accuracy.index if accuracy[label].count]):
            continue
        leader = next(label for label in ranked if not marks[label][1].count)
        rivals = [label for label in ranked if label != leader]
        seconds, memory = over_seeds(rows, "seconds"), over_seeds(rows, "peak_memory_bytes")
        found.append(
            Lead(
                family=str(family),
                label=leader,
                accuracy=accuracy[leader],
                mark=marks[leader][0],
                next=rivals[0] if rivals else "",
                ahead=marks[rivals[0]][1] if rivals else Estimate.of([]),
                level=tuple(label for label in rivals if marks[label][0] == LEVEL_WITH),
                seconds=seconds[leader].mean,
                plain_seconds=float(section.frame.loc[section.frame["method"] == "sgd", "seconds"].mean()),
                memory=memory[leader].mean,
            )
        )
    return found


def table_of(section: Section) -> list[Table]:
    """The tables of a section."""
    builders: dict[str, Callable[[Section], list[Table]]] = {
        "comparison": lambda section: [comparison_table(section)],
        "sweep": lambda section: [choices_table(section)],
        "ablation": steps_tables,
    }
    return builders[section.kind](section)


def comparison_table(section: Section) -> Table:
    """Every score of every line, family by family."""
    shown = [score for score in scores_of(section.results) if score.name != "final_accuracy"]
    shown = [score for score in shown if section.frame[score.name].notna().any()]
    rows: list[Row] = []
    several = section.frame["family"].nunique() > 1
    for family, members in section.frame.groupby("family", sort=False):
        marks = standings(members) if family != "joint" else {}
        numbers = {score.name: over_seeds(members, score.name) for score in shown}
        for label, accuracy in over_seeds(members, "final_accuracy").items():
            some = members[members["label"] == label]
            mark, behind = marks.get(label, ("", Estimate.of([])))
            cells = (
                Cell(label, label),
                percent(accuracy, MARKS.get(mark, "")),
                Cell(half := half_width(accuracy, 0.68), half),
                percent(behind),
                *(score_cell(score, numbers[score.name][label]) for score in shown),
                Cell(seeds_of(accuracy, some), accuracy.count),
            )
            heading = (
                FAMILIES[str(family)] if several and not any(row.group == FAMILIES[str(family)] for row in rows) else ""
            )
            rows.append(Row(cells, str(some["method"].iloc[0]), label, heading))
    columns = ("method", "accuracy, %", "± 68 %", "behind the best, %", *map(heading_of, shown), "seeds")
    return Table("After the last task, over all tasks", columns, tuple(rows), READING)


def choices_table(section: Section) -> Table:
    """What a sweep chose for each method."""
    rows = []
    for response in section.responses:
        chosen = response.chosen
        cells = (
            Cell(response.method, response.method),
            percent(Estimate.of([]) if chosen is None else chosen.accuracy),
            Cell(str(len(response.points)), len(response.points)),
            Cell(str(refused := sum(point.refused is not None for point in response.points)), refused),
            Cell("none" if chosen is None else words.listed(chosen.settings)),
            Cell(" ".join(response.notes)),
        )
        rows.append(Row(cells, response.method, response.method))
    columns = ("method", "held-out accuracy, %", "tried", "refused", "chosen", "remarks")
    note = "Chosen: the highest mean final accuracy on the held-out part, among the settings that the rule admits."
    return Table("What was chosen for each method", columns, tuple(rows), note, wide=columns[4:])


def steps_tables(section: Section) -> list[Table]:
    """What each value of an ablated setting led to."""
    tables = []
    for ablation in section.ablations:
        rows = []
        for step in ablation.steps:
            papers = step.value == ablation.paper_value
            cells = (
                Cell(words.shown(step.value) + (" (the paper's)" if papers else "")),
                percent(step.accuracy),
                percent(step.forgetting),
                Cell(str(step.accuracy.count), step.accuracy.count),
            )
            rows.append(Row(cells, ablation.method, ablation.method))
        columns = (ablation.setting, "accuracy, %", "forgetting, %", "seeds")
        tables.append(Table(f"{ablation.method}: {ablation.setting}", columns, tuple(rows)))
    return tables


def percent(estimate: Estimate, mark: str = "") -> Cell:
    """The mean as a percentage, with half its 95 % interval where there is one."""
    if not estimate.count:
        return Cell(words.NONE)
    return Cell(words.number(100 * estimate.mean), 100 * estimate.mean, half_width(estimate), mark)


def score_cell(score: Score, estimate: Estimate) -> Cell:
    """A score in the unit of its column."""
    if score.unit == "fraction":
        return percent(estimate)
    if score.unit == "nats" and estimate.count:
        return Cell(f"{estimate.mean:.3g}", estimate.mean)
    value = estimate.mean / (1e6 if score.unit == "bytes" else 1)
    return Cell(words.plain(value), value) if estimate.count else Cell(words.NONE)


def half_width(estimate: Estimate, confidence: float = 0.95) -> str:
    """Half the interval in percent; empty where one seed, or none, gives no interval."""
    return f"± {100 * estimate.half_width(confidence):.2f}" if estimate.count > 1 else ""


def heading_of(score: Score) -> str:
    """The head of a score's column."""
    unit = {"fraction": ", %", "nats": ", nats", "seconds": ", s", "bytes": ", MB", "number": ""}[score.unit]
    return score.title.lower() + unit


def seeds_of(accuracy: Estimate, rows: pd.DataFrame) -> str:
    """How many seeds a mean rests on, and what became of the others."""
    diverged = int((rows["status"] == "diverged").sum())
    missing = f" of {len(rows)}" if accuracy.missing else ""
    return f"{accuracy.count}{missing}" + (f", {diverged} diverged" if diverged else "")


def write_markdown(path: Path, results: Iterable[RunResult], *, title: str) -> None:
    """Write the tables for these results, whole or not at all."""
    atomic.write_text(path, report_markdown(results, title=title))


def report_markdown(results: Iterable[RunResult], *, title: str) -> str:
    """Comparisons, sweeps and ablations as tables, each with the commands behind it."""
    blocks = [f"# {words.escaped(title)}"]
    sections = sections_of(results)
    for section in sections:
        blocks.append(f"## {words.escaped(section.title)}, {words.escaped(section.condition)}")
        blocks.append(words.escaped(" · ".join(section.details)))
        for table in table_of(section):
            blocks += [f"### {words.escaped(table.title)}", markdown(table), *([table.note] if table.note else [])]
        blocks.append(_commands(commands_of(section).values()))
    if not sections:
        blocks.append("There are no results here yet.")
    return words.encodable("\n\n".join(blocks) + "\n")


def commands_of(section: Section) -> dict[str, str]:
    """The command that makes the runs of each line again, by its label."""
    return {
        label: command_of(runs[0].config, [run.config.seed for run in runs]) for label, runs in section.lines.items()
    }


def markdown(table: Table) -> str:
    """A table as Markdown."""
    rows: list[Sequence[str]] = []
    for row in table.rows:
        if row.group:
            rows.append([f"*{row.group}*", *[""] * (len(table.columns) - 1)])
        rows.append([_written(cell) for cell in row.cells])
    return markdown_table([words.escaped(column) for column in table.columns], rows)


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table whose first column is words and whose others are numbers."""
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def margined(estimate: Estimate) -> str:
    """The mean as a percentage, with half its 95 % interval where there is one."""
    return _written(percent(estimate))


def _written(cell: Cell) -> str:
    text = words.escaped(cell.text)
    return " ".join(
        part for part in (f"**{text}**" if cell.mark == MARKS[BEST] else text, cell.mark, cell.margin) if part
    )


def _commands(commands: Iterable[str]) -> str:
    text = "\n".join(command.replace("\n", " ") for command in commands)
    fence = "```"
    while fence in text:
        fence += "`"
    return f"<details><summary>Commands</summary>\n\n{fence}sh\n{text}\n{fence}\n\n</details>"


TERMINAL = {
    **{"method": "method", "accuracy, %": "accuracy\n%", "± 68 %": "68 %", "behind the best, %": "behind\n%"},
    **{"forgetting, %": "forget-\nting %", "gradient removed, %": "removed\n%", "time, s": "seconds", "seeds": "seeds"},
}
"""The columns of a comparison for which a terminal has room."""


def terminal_tables(results: Iterable[RunResult]) -> list["RichTable"]:
    """A table for each set of comparable runs, for `rich.console.Console.print`."""
    return [_on_the_terminal(section, table) for section in sections_of(results) for table in table_of(section)]


def _on_the_terminal(section: Section, table: Table) -> "RichTable":
    with from_extra("lab"):
        from rich import box
        from rich.table import Table as RichTable
        from rich.text import Text

    # A name is a text, never markup: brackets in it are brackets.
    title = Text(words.encodable(section.title))
    caption = Text(words.encodable(" · ".join((section.condition, *section.details))))
    drawn = RichTable(title=title, caption=caption, box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    heads = TERMINAL if section.kind == "comparison" else {column: column for column in table.columns}
    places = [place for place, column in enumerate(table.columns) if column in heads]
    for place in places:
        column = table.columns[place]
        named = not place or column in table.wide
        drawn.add_column(
            Text(heads[column]),
            justify="left" if named else "right",
            overflow="fold",
            no_wrap=not named,
            min_width=14 if named else None,
        )
    for row in table.rows:
        cells = [row.cells[place] for place in places]
        whole = [section.kind != "comparison" or place == 1 for place in places]
        short = [_with_margin(cell) if all_of_it else cell.text for cell, all_of_it in zip(cells, whole, strict=True)]
        drawn.add_row(*(Text(words.encodable(text)) for text in short))
    return drawn


def _with_margin(cell: Cell) -> str:
    return " ".join(part for part in (cell.text + cell.mark, cell.margin) if part)


def _or_none(values: pd.Series) -> pd.Series:
    return values.astype(object).where(values.notna(), None)
