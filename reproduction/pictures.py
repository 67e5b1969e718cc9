"""The pictures of the site: the accuracy on earlier tasks for README and landing page, and a figure for each finding."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import altair as alt
import pandas as pd

from fopng.lab.report.charts import charts_of
from fopng.lab.report.files import drawn
from fopng.lab.report.sections import sections_of
from fopng.lab.runs.frame import accuracy_frame
from fopng.lab.runs.result import RunResult
from fopng.lab.runs.store import load_results
from reproduction.numbers import BENCH, STREAMS, chosen, is_chosen
from reproduction.tolerance.figure import figures as tolerance_figures

SHOWN: Mapping[str, str] = {"sgd": "plain SGD", "ewc": "EWC", "fopng": "FOPNG", "fopng-k": "fopng-k"}
COLOURS = ("#d1495b", "#b8860b", "#7a869a", "#2f81f7")
"""To be read on white and on black."""


def pictures(results: Iterable[RunResult]) -> dict[str, str]:
    """The SVG of each picture, by its name below `docs/static`."""
    results = list(results)
    return {"forgetting.svg": _forgetting(earlier(results)), **figures(results), **tolerance_figures()}


def earlier(results: Iterable[RunResult]) -> pd.DataFrame:
    """After each task but the first, the mean accuracy on those before it, of Split-MNIST under the matched protocol."""
    chosen = [
        run
        for run in results
        if (run.config.benchmark, run.config.protocol) == ("split-mnist", "matched")
        and run.config.method in SHOWN
        and "comparison/paper" in run.experiments
        and run.config.settings.get("projection") != "orthogonal"
        and not run.config.validation
    ]
    table = accuracy_frame(chosen)
    before = table[(table.part == "test") & (table.on_task < table.after_task)]
    means = before.groupby(["method", "seed", "after_task"]).accuracy.mean().groupby(["method", "after_task"]).mean()
    return means.reset_index().assign(method=lambda found: found.method.map(SHOWN))


def _forgetting(table: pd.DataFrame) -> str:
    base = alt.Chart(table).encode(
        x=alt.X("after_task:O", title="tasks learnt", axis=alt.Axis(labelAngle=0, labelFontSize=18, titleFontSize=20)),
        y=alt.Y(
            "accuracy:Q",
            title="accuracy on earlier tasks",
            axis=alt.Axis(format="%", tickCount=4, labelFontSize=18, titleFontSize=20),
            scale=alt.Scale(domain=[0.5, 1.0]),
        ),
        color=alt.Color("method:N", scale=alt.Scale(domain=list(SHOWN.values()), range=COLOURS), legend=None),
    )
    last = base.transform_filter(f"datum.after_task == {table.after_task.max()}")
    names = last.mark_text(align="left", dx=10, fontSize=20, fontWeight="bold").encode(text="method:N")
    lines = base.mark_line(strokeWidth=3.5) + base.mark_point(size=70, filled=True, opacity=1)
    chart = (lines + names).properties(width=460, height=290, padding={"right": 48, "left": 5, "top": 8, "bottom": 5})
    return drawn(chart.to_dict(), "svg").decode()


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
