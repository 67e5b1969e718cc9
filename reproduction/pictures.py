"""The picture of README and landing page: the accuracy on earlier tasks while new ones are learnt, in light and dark."""

import io
from collections.abc import Iterable, Mapping

import altair as alt
import pandas as pd

from fopng.lab.runs.frame import accuracy_frame
from fopng.lab.runs.result import RunResult

SHOWN: Mapping[str, str] = {"sgd": "plain SGD", "ewc": "EWC", "fopng": "FOPNG", "fopng-k": "fopng-k"}
LIGHT: Mapping[str, str | list[str]] = {
    "text": "#1f2430",
    "grid": "#d9dee8",
    "lines": ["#c4442f", "#9a7b1c", "#5b6b8c", "#1d6fd0"],
}
DARK: Mapping[str, str | list[str]] = {
    "text": "#dfe4ee",
    "grid": "#3a4252",
    "lines": ["#ff8a70", "#e0bd55", "#a9b8d6", "#6db3ff"],
}


def pictures(results: Iterable[RunResult]) -> dict[str, str]:
    """The SVG of each picture, by its name below `docs/static`."""
    table = earlier(results)
    return {"forgetting.svg": _drawn(table, LIGHT), "forgetting-dark.svg": _drawn(table, DARK)}


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


def _drawn(table: pd.DataFrame, colours: Mapping[str, str | list[str]]) -> str:
    text, grid = colours["text"], colours["grid"]
    base = alt.Chart(table).encode(
        x=alt.X("after_task:O", title="tasks learnt", axis=alt.Axis(labelAngle=0)),
        y=alt.Y(
            "accuracy:Q",
            title="accuracy on earlier tasks",
            axis=alt.Axis(format="%", tickCount=4),
            scale=alt.Scale(domain=[0.5, 1.0]),
        ),
        color=alt.Color("method:N", scale=alt.Scale(domain=list(SHOWN.values()), range=colours["lines"]), legend=None),
    )
    last = base.transform_filter(f"datum.after_task == {table.after_task.max()}")
    names = last.mark_text(align="left", dx=10, fontSize=20, fontWeight="bold").encode(text="method:N")
    chart = (base.mark_line(strokeWidth=3.5) + base.mark_point(size=70, filled=True, opacity=1) + names).properties(
        width=460, height=290
    )
    whole = chart.configure(
        background="transparent", font="system-ui, sans-serif", padding={"right": 48, "left": 5, "top": 8, "bottom": 5}
    )
    drawn = whole.configure_view(stroke=None).configure_axis(
        **{f"{part}Color": text for part in ("title", "label")},
        **{f"{part}Color": grid for part in ("grid", "domain", "tick")},
        titleFontSize=20,
        labelFontSize=18,
        titleFontWeight="normal",
    )
    return _svg(drawn)


def _svg(chart: alt.LayerChart) -> str:
    file = io.StringIO()
    chart.save(file, format="svg")
    return file.getvalue() + "\n"
