"""What a command would do, and how long it would take: for `--dry-run`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from fopng.cli.output import show_json, show_table
from fopng.cli.results import say
from fopng.cli.run_options import RunOptions, WorkOptions
from fopng.cli.work import runner_of
from fopng.lab.engine.observers.progress import duration
from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.store import Store
from fopng.lab.schedule.forecast import Forecast

Time = Callable[[Sequence[RunConfig]], float | None]
"""How many seconds runs take; None where that was not asked for."""


def time_of(options: WorkOptions, *, estimate: bool) -> Time:
    """Estimates from the finished runs of the folder, or from a short measurement."""
    if not estimate:
        return lambda configs: None
    known = Store(options.out).results(damaged=lambda error: None) if options.out.is_dir() else []
    return Forecast(replace(runner_of(options), notice=say), known).seconds


def here(seconds: float | None) -> str:
    """The time at the end of a sentence.

    >>> here(80.0), here(None)
    (', about 1:20 here', '')
    """
    return "" if seconds is None else f", about {duration(seconds)} here"


def show_plan(configs: Iterable[RunConfig], options: RunOptions) -> None:
    """Which of these runs are there and which are missing, and how long those would take."""
    asked = list({config.key: config for config in configs}.values())
    missing = asked if options.again else runner_of(options).unfinished(asked)
    there = [config for config in asked if config not in missing]
    seconds = time_of(options, estimate=options.estimate)(missing)
    show_counts(there, missing, as_json=options.as_json, seconds=seconds)
    say(f"{len(there)} runs there already, {len(missing)} to do{here(seconds)}.")


def show_counts(
    there: Iterable[RunConfig], missing: Iterable[RunConfig], *, as_json: bool, **totals: float | None
) -> None:
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
