"""`fopng benchmarks`: the streams of tasks there are, and their settings."""

from __future__ import annotations

from typing import Any

from fopng.cli.commands import Benchmarks
from fopng.cli.output import show_json, show_table
from fopng.lab.benchmarks import BENCHMARKS, PAPER, DatasetBenchmark, find_benchmark, settable
from fopng.lab.data.catalog import DATASETS, KnownDataset
from fopng.optim.settings import settings_of


def benchmarks(options: Benchmarks) -> None:
    """Print the table."""
    if options.name is None:
        _show_all(list(BENCHMARKS.values()), options.as_json)
        return
    benchmark = find_benchmark(options.name)
    if not isinstance(benchmark, DatasetBenchmark):
        raise ValueError(
            f"Expected a benchmark with settings, got {options.name!r}, whose settings are its function's own."
        )
    _show_settings(benchmark, options.as_json)


def _show_all(known: list[DatasetBenchmark], as_json: bool) -> None:
    described = [_describe(benchmark) for benchmark in known]
    if as_json:
        show_json(described)
        return
    columns = ("benchmark", "tasks", "scenario", "paper", "after")
    rows = [
        (each["name"], str(each["tasks"] or ""), each["scenario"], "yes" if each["in_paper"] else "", each["origin"])
        for each in described
    ]
    show_table(columns, rows, right=("tasks",))


def _describe(benchmark: DatasetBenchmark) -> dict[str, Any]:
    known = DATASETS[benchmark.dataset]
    return {
        "name": benchmark.name,
        "dataset": benchmark.dataset,
        "tasks": benchmark.task_count(known.contents.classes) if isinstance(known, KnownDataset) else None,
        "scenario": benchmark.scenario.value,
        "in_paper": benchmark.name in PAPER,
        "origin": benchmark.origin,
    }


def _show_settings(benchmark: DatasetBenchmark, as_json: bool) -> None:
    described = {"scenario": settings_of(type(benchmark))["scenario"], **settable(benchmark)}
    values = {name: vars(benchmark)[name] for name in described}
    if as_json:
        show_json({"name": benchmark.name, "settings": values})
        return
    rows = [(name, _word(values[name]), each.means) for name, each in described.items()]
    show_table(("setting", "default", "is"), rows)


def _word(value: Any) -> str:
    """A setting as a user would type it."""
    if isinstance(value, tuple):
        return ",".join(f"{each:g}" for each in value) or "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
