"""The pictures of the site: a figure for each finding."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from fopng.lab.report.charts import charts_of
from fopng.lab.report.files import drawn
from fopng.lab.report.sections import sections_of
from fopng.lab.runs.result import RunResult
from fopng.lab.runs.store import load_results
from reproduction.numbers import BENCH, STREAMS, chosen, is_chosen
from reproduction.tolerance.figure import figures as tolerance_figures


def pictures(results: Iterable[RunResult]) -> dict[str, str]:
    """The SVG of each picture, by its name below `docs/static`."""
    return {**figures(results), **tolerance_figures()}


PAPERS = ("sgd", "adam", "ewc", "fng", "ogd", "fopng", "fopng-prefisher")
FINDINGS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    **{name: (name, "comparison/paper", PAPERS) for name in STREAMS},
    "bent": ("split-mnist", "chosen/methods", ("sgd", "ewc", "fopng", "gpm", "sgp", "ncl", "fopng-k")),
    "replay": ("split-mnist", "chosen/methods", ("er", "gem", "a-gem", "fopng-k")),
    "damping": ("split-mnist", "ablation/damping", ("fopng",)),
}
"""The figures of the findings: a stream, an experiment, methods."""


def figures(results: Iterable[RunResult]) -> dict[str, str]:
    """The SVG of each finding's figure, by its name below `docs/static`."""
    results = list(results)
    long = load_results([BENCH / "stream-20"])
    best = chosen(long)
    drawn_from = {name: _runs(results, *shown) for name, shown in FINDINGS.items()}
    drawn_from["streams"] = [replace(run, experiments=("comparison",)) for run in long if is_chosen(run, best)]
    return {f"finding-{name}.svg": _figure(runs) for name, runs in drawn_from.items()}


def _runs(results: Iterable[RunResult], benchmark: str, experiment: str, methods: Sequence[str]) -> list[RunResult]:
    return [
        replace(run, experiments=(experiment,))
        for run in results
        if (run.config.benchmark, run.config.protocol) == (benchmark, "matched")
        and run.config.method in methods
        and experiment in run.experiments
        and run.config.settings.get("projection") != "orthogonal"
    ]


def _figure(runs: Iterable[RunResult]) -> str:
    """The first chart of the section that these runs make: accuracy over tasks, or over a setting."""
    [section] = sections_of(runs)
    return drawn(charts_of(section)[0].specification, "svg").decode()
