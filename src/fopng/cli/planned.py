"""What is there already, for commands that say beforehand what they would do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from fopng.cli.output import show_json, show_table

if TYPE_CHECKING:
    from fopng.lab.runs.config import RunConfig
    from fopng.lab.runs.result import RunResult


def found_in(out: Path) -> Callable[[RunConfig], RunResult | None]:
    """Look up the result of a run in a folder; one that cannot be read counts as missing, since it would be done again."""
    from fopng.lab.runs.result import DamagedFileError
    from fopng.lab.runs.store import Store

    store = Store(out)

    def find(config: RunConfig) -> RunResult | None:
        try:
            return store.folder(config).result()
        except DamagedFileError:
            return None

    return find


def show_planned(there: Iterable[RunConfig], missing: Iterable[RunConfig], *, as_json: bool, **totals: int) -> None:
    """A table of what is there and what is missing, for each benchmark and method.

    Args:
        there: runs that are done.
        missing: runs that would be done.
        as_json: print JSON instead.
        totals: what else the JSON says.
    """
    rows: dict[tuple[str, str, str], list[int]] = {}
    for column, configs in enumerate((there, missing)):
        for config in configs:
            part = "validation" if config.validation else "test"
            rows.setdefault((config.benchmark, config.method, part), [0, 0])[column] += 1
    columns = ("benchmark", "method", "part", "there", "missing")
    if as_json:
        counts = [dict(zip(columns, (*who, *numbers), strict=True)) for who, numbers in rows.items()]
        sums = [sum(numbers[column] for numbers in rows.values()) for column in (0, 1)]
        show_json({"runs": counts, "there": sums[0], "missing": sums[1], **totals})
        return
    show_table(columns, [(*who, *map(str, counts)) for who, counts in rows.items()], right=columns[3:])
