"""The charts of a report: one specification each, for the page, SVG, PNG and PDF.

A chart is a function from a data frame to an Altair chart, and one entry in `CHARTS`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import altair as alt
import pandas as pd
from altair.utils.schemapi import debug_mode

from fopng.lab.report import words
from fopng.lab.report.frames import Frames, ablated, curves, entries, lost, mean_of, measured, pairs, responses, spots
from fopng.lab.report.looks import SHOWN, looks, style
from fopng.lab.report.lost import lost_panels
from fopng.lab.report.sections import Kind, Section

Layers = alt.LayerChart | alt.FacetChart

CHECKED = False
"""Whether specifications are held to the schema of Vega-Lite."""

MANY = 8
"""Lines above which bands would hide each other: they are drawn for an isolated method alone."""


@final
@dataclass(frozen=True)
class Chart:
    """A kind of chart: where it stands, what it is drawn from, and how to read it."""

    name: str
    title: str
    on: Kind
    data: Callable[[Section], Frames]
    draw: Callable[[pd.DataFrame], alt.TopLevelMixin]
    note: str = ""
    place: str = "first"
    """On the page: before the tables, after them, or folded away."""


@final
@dataclass(frozen=True)
class Drawn:
    """A chart of a section, as a specification of Vega-Lite."""

    name: str
    title: str
    note: str
    place: str
    specification: dict[str, Any]


def charts_of(section: Section) -> list[Drawn]:
    """Every chart of a section that there are numbers for."""
    found = []
    # Altair checks each part of a chart against a schema, which takes most of the time; the tests do that.
    with debug_mode(CHECKED):
        for chart in (chart for chart in CHARTS if chart.on == section.kind):
            for subject, rows in chart.data(section).items():
                if len(rows):
                    title = chart.title.format(subject=subject)
                    name = f"{chart.name}-{words.slug(subject)}" if subject else chart.name
                    found.append(Drawn(name, title, chart.note, chart.place, specification(chart.draw(rows), title)))
    return found


def specification(chart: alt.TopLevelMixin, title: str) -> dict[str, Any]:
    """The specification of a chart, with the parameter that isolates a method."""
    with alt.data_transformers.enable("default", max_rows=None):
        members: dict[str, Any] = chart.to_dict(validate=CHECKED)
    members.pop("config", None)
    members["params"] = [{"name": "isolated", "value": ""}]
    whole: dict[str, Any] = _encodable({**members, "description": title})
    return whole


def _encodable(value: Any) -> Any:
    if isinstance(value, dict):
        return {words.encodable(name): _encodable(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_encodable(member) for member in value]
    # A title goes into expressions of Vega, which end with their line.
    return " ".join(words.encodable(value).splitlines()) if isinstance(value, str) else value


INTERVAL = [alt.Tooltip("interval:N", title="95 %"), alt.Tooltip("seeds:Q", title="seeds")]


def lines(rows: pd.DataFrame, x: alt.X, y: str, place: list[alt.Tooltip], *, few: bool) -> Layers:
    """Lines with a band and points."""
    look = looks(rows)
    colour = alt.Color(**style(), scale=look["color"])
    base = alt.Chart(rows).encode(x=x)
    faint = f"isolated == '' ? {0.16 if few else 0} : datum.method == isolated ? .25 : 0"
    band = base.mark_area(opacity=1).encode(
        y=alt.Y("low:Q", title=y, scale=alt.Scale(zero=False)),
        y2="high:Q",
        color=colour,
        fillOpacity=alt.value(alt.expr(faint)),
    )
    shown = alt.condition(SHOWN, alt.value(1), alt.value(0.08))
    y_mean = alt.Y("mean:Q", title=y, scale=alt.Scale(zero=False))
    line = base.mark_line(strokeWidth=2).encode(
        y=y_mean, color=colour, strokeDash=alt.StrokeDash(**style(), scale=look["dash"]), opacity=shown
    )
    point = base.mark_point(filled=True, size=55).encode(
        y=y_mean,
        color=colour,
        shape=alt.Shape(**style(), scale=look["shape"]),
        opacity=shown,
        tooltip=[
            alt.Tooltip("label:N", title="method"),
            *place,
            alt.Tooltip("mean:Q", title=y, format=".2f"),
            *INTERVAL,
        ],
    )
    return alt.layer(band, line, point)


def over_tasks(rows: pd.DataFrame, y: str) -> Layers:
    """A number of each line after each task."""
    tasks = int(rows["task"].max())
    x = alt.X(
        "task:Q",
        title="task",
        axis=alt.Axis(values=list(range(1, tasks + 1, -(-tasks // 12))), format="d"),
        scale=alt.Scale(domain=[1, max(2, tasks)], nice=False),
    )
    return lines(rows, x, y, [alt.Tooltip("task:Q")], few=rows["label"].nunique() <= MANY).properties(
        width=560, height=320
    )


def measured_curves(rows: pd.DataFrame) -> Layers:
    """What was measured while each task was learnt."""
    return over_tasks(rows, "mean, %")


def accuracy_curves(rows: pd.DataFrame) -> Layers:
    """`A_k` after each task, with 68 % bands over seeds, as in the paper's figures."""
    return over_tasks(rows, "mean accuracy, %")


def learning_scatter(spots: pd.DataFrame) -> Layers:
    """Forgetting against learning, with the front of each family."""
    look = looks(spots)
    colour = alt.Color(**style(), scale=look["color"])
    shown = alt.condition(SHOWN, alt.value(1), alt.value(0.08))
    x = alt.X("mean:Q", title="forgetting, %", scale=alt.Scale(zero=False, padding=12))
    y = alt.Y("mean_learnt:Q", title="accuracy when just learnt, %", scale=alt.Scale(zero=False, padding=12))
    base = alt.Chart(spots).encode(color=colour, opacity=shown)
    fronts = pareto_fronts(spots)
    stepped = alt.Chart(fronts).mark_line(interpolate="step-after", strokeWidth=1, color="#8a8f98")
    front = stepped.encode(x=x, y=y, detail="family:N")
    tooltip = [
        alt.Tooltip("label:N", title="method"),
        alt.Tooltip("mean:Q", title="forgetting, %", format=".2f"),
        alt.Tooltip("interval:N", title="95 %"),
        alt.Tooltip("mean_learnt:Q", title="when just learnt, %", format=".2f"),
        alt.Tooltip("interval_learnt:N", title="95 %  "),
        alt.Tooltip("seeds:Q"),
    ]
    point = base.mark_point(size=90, strokeWidth=2).encode(
        x=x,
        y=y,
        shape=alt.Shape(**style(), scale=look["shape"]),
        fill=alt.Fill(**style(), scale=look["color"]),
        fillOpacity=alt.condition("datum.family == 'none'", alt.value(0.9), alt.value(0)),
        tooltip=tooltip,
    )
    whiskers = (
        base.mark_rule().encode(x=alt.X("low:Q", title="forgetting, %"), x2="high:Q", y=y),
        base.mark_rule().encode(x=x, y=alt.Y("low_learnt:Q"), y2="high_learnt:Q"),
    )
    return alt.layer(*([front] if len(fronts) else []), *whiskers, point).properties(width=560, height=320)


def pareto_fronts(spots: pd.DataFrame) -> pd.DataFrame:
    """Those of each family that no other forgets less and learns more than, the least forgetting first."""
    ordered = spots.sort_values(["mean", "mean_learnt"], ascending=[True, False])
    best = ordered.groupby("family")["mean_learnt"].cummax()
    front = ordered[
        (ordered["mean_learnt"] == best) & ~best.groupby(ordered["family"]).transform(lambda b: b.duplicated())
    ]
    return front[front.groupby("family")["label"].transform("size") > 1]


def time_bars(rows: pd.DataFrame) -> alt.Chart:
    """The seconds of a run."""
    return bars(rows, "seconds")


def memory_bars(rows: pd.DataFrame) -> alt.Chart:
    """The peak memory of a run."""
    return bars(rows, "megabytes")


def bars(rows: pd.DataFrame, unit: str) -> alt.Chart:
    """A bar for each line, the shortest first."""
    drawn: alt.Chart = (
        alt.Chart(rows)
        .mark_bar(cornerRadiusEnd=2)
        .encode(
            x=alt.X("mean:Q", title=unit),
            y=alt.Y("label:N", sort="x", title=None, axis=alt.Axis(labelLimit=170)),
            color=alt.Color(**style(), scale=looks(rows)["color"], legend=None),
            opacity=alt.condition(SHOWN, alt.value(0.85), alt.value(0.1)),
            tooltip=[
                alt.Tooltip("label:N", title="method"),
                alt.Tooltip("mean:Q", title=unit, format=",.2f"),
                *INTERVAL,
            ],
        )
        .properties(width=560, height=17 * len(rows))
    )
    return drawn


def matrices(rows: pd.DataFrame) -> alt.FacetChart:
    """An accuracy matrix for each line."""
    tasks = int(rows["on"].max())
    side = max(140, min(15 * tasks, 300)) if tasks > 6 else 150
    base = alt.Chart().encode(
        x=alt.X("on:O", title="accuracy on task", axis=_few_ticks(tasks)),
        y=alt.Y("after:O", title="after task", axis=_few_ticks(tasks)),
    )
    low, shown = float(rows["mean"].min()), alt.condition(SHOWN, alt.value(1), alt.value(0.12))
    cells = base.mark_rect().encode(
        color=alt.Color("mean:Q", title="accuracy, %", scale=alt.Scale(scheme="viridis", domain=[low // 10 * 10, 100])),
        opacity=shown,
        tooltip=[
            alt.Tooltip("label:N", title="method"),
            *(alt.Tooltip("after:O", title="after task"), alt.Tooltip("on:O", title="on task")),
            *(alt.Tooltip("mean:Q", title="accuracy, %", format=".2f"), *INTERVAL),
        ],
    )
    middle = (low // 10 * 10 + 100) / 2
    numbers = base.mark_text(fontSize=10).encode(
        text=alt.Text("mean:Q", format=".0f" if tasks > 5 else ".1f"),
        color=alt.condition(f"datum.mean > {middle}", alt.value("#111"), alt.value("#fff")),
        opacity=shown,
    )
    layers = alt.layer(cells, numbers) if tasks <= 8 else alt.layer(cells)
    order = list(rows["label"].unique())
    return layers.properties(width=side, height=side).facet(
        facet=alt.Facet("label:N", title=None, sort=order, header=alt.Header(labelLimit=side)), data=rows, columns=4
    )


def _span(first: int, last: int) -> alt.Scale:
    """One value alone still needs an axis with two ends."""
    return alt.Scale(domain=[first, max(first + 1, last)], nice=False)


def _few_ticks(tasks: int) -> alt.Axis:
    step = 1 if tasks <= 12 else 5
    return alt.Axis(values=[1, *range(step, tasks + 1, step)] if step > 1 else list(range(1, tasks + 1)), labelAngle=0)


def response_lines(rows: pd.DataFrame) -> Layers:
    """The accuracy over the values of a setting, with 95 % bands."""
    setting = str(rows["setting"].iloc[0])
    numbers = rows["number"].astype("float64")
    tooltip = [alt.Tooltip("value:N", title=setting)]
    few = rows["label"].nunique() <= MANY
    if numbers.notna().all() and (numbers > 0).all() and numbers.max() / numbers.min() >= 10:
        x = alt.X(
            "number:Q",
            title=setting,
            scale=alt.Scale(type="log"),
            axis=alt.Axis(format="~g", labelOverlap=True, tickCount=6),
        )
    elif numbers.notna().all():
        x = alt.X("number:Q", title=setting, scale=alt.Scale(zero=False))
    else:
        order = rows.assign(n=numbers.fillna(float("inf"))).sort_values("n", kind="stable")["value"].unique()
        x = alt.X("value:O", title=setting, sort=list(order), axis=alt.Axis(labelAngle=0))
    drawn: Layers = lines(rows, x, "accuracy, %", tooltip, few=few)
    if "papers" in rows and rows["papers"].any():
        rule = (
            alt.Chart(rows[rows["papers"]].drop_duplicates("value"))
            .mark_rule(strokeDash=[2, 3], color="#8a8f98")
            .encode(x=x)
        )
        drawn = alt.layer(rule, drawn)
    return drawn.properties(width=560, height=300)


def pair_grid(rows: pd.DataFrame) -> Layers:
    """The held-out accuracy for every pair of two settings' values."""
    down, across = str(rows["down"].iloc[0]), str(rows["across"].iloc[0])
    columns = list(rows.sort_values("column_rank")["column"].unique())
    rows_in_order = list(rows.sort_values("row_rank")["row"].unique())
    base = alt.Chart(rows.drop(columns=["row_rank", "column_rank"])).encode(
        x=alt.X("column:O", title=across, sort=columns, axis=alt.Axis(labelAngle=0)),
        y=alt.Y("row:O", title=down, sort=rows_in_order),
    )
    low = float(rows["mean"].min()) // 10 * 10
    tooltip = [
        *(alt.Tooltip("settings:N"), alt.Tooltip("mean:Q", title="accuracy, %", format=".2f"), *INTERVAL),
        alt.Tooltip("refused:N"),
    ]
    cells = base.mark_rect(strokeWidth=3).encode(
        color=alt.Color(
            "mean:Q", title="held-out, %", scale=alt.Scale(scheme="viridis", domain=[low, 100]), legend=None
        ),
        stroke=alt.condition("datum.chosen", alt.value("#e0632b"), alt.value(None)),
        opacity=alt.condition(SHOWN, alt.value(1), alt.value(0.12)),
        tooltip=tooltip,
    )
    text = base.mark_text(fontSize=11).encode(
        text="text:N",
        color=alt.condition(f"datum.mean > {(low + 100) / 2}", alt.value("#111"), alt.value("#fff")),
        opacity=alt.condition(SHOWN, alt.value(1), alt.value(0.2)),
    )
    return alt.layer(cells, text).properties(width=max(160, 58 * len(columns)), height=alt.Step(26))


SIDE_BY_SIDE = "Means over seeds; of runs that were done side by side, each one's share."
CHARTS: list[Chart] = [
    Chart(
        "accuracy",
        "Mean accuracy over the tasks seen",
        "comparison",
        curves,
        accuracy_curves,
        "Bands hold 68 % over seeds; with many lines, isolate one to see its band.",
    ),
    Chart(
        "learning",
        "Learning against forgetting",
        "comparison",
        spots,
        learning_scatter,
        "Up and to the left is better. The stepped line joins the methods of a family that no other beats in both; hollow "
        "markers keep data of old tasks. Whiskers hold 68 %.",
    ),
    Chart("seconds", "Time of a run", "comparison", mean_of("seconds", 1), time_bars, SIDE_BY_SIDE, "after"),
    Chart(
        "memory",
        "Peak memory of a run",
        "comparison",
        mean_of("peak_memory_bytes", 1e-6),
        memory_bars,
        SIDE_BY_SIDE,
        "after",
    ),
    Chart(
        "lost",
        "Asked, measured and really lost",
        "comparison",
        lost,
        lost_panels,
        "How far the answers to old tasks have moved since each ended: the mean KL divergence on test data, in nats, beside what "
        "the method measures of it and its tolerance. Thick: the mean over old tasks. Thin: the task that lost most.",
        "after",
    ),
    Chart("measured", "While each task was learnt: {subject}", "comparison", measured, measured_curves, "", "after"),
    Chart(
        "matrices",
        "Accuracy matrices",
        "comparison",
        entries,
        matrices,
        "Row: after learning that task. Column: accuracy on that task. Forgetting is a column that fades downwards.",
        "folded",
    ),
    Chart(
        "response",
        "Response to {subject}",
        "sweep",
        responses,
        response_lines,
        "The best that each value allows, whatever the other settings. Bands hold 95 % over seeds.",
        "after",
    ),
    Chart(
        "pairs",
        "Two settings together: {subject}",
        "sweep",
        pairs,
        pair_grid,
        "Held-out accuracy, %. Framed: chosen. In brackets: refused by the rule.",
        "folded",
    ),
    Chart(
        "response",
        "Response to {subject}",
        "ablation",
        ablated,
        response_lines,
        "One setting varied, all others kept. Bands hold 95 % over seeds; the dotted line is the paper's value.",
    ),
]
"""Every kind of chart, in the order of the page."""
