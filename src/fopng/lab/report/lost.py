"""The chart of what old tasks lost: asked, measured, really lost, a panel for each line."""

import altair as alt
import pandas as pd

from fopng.lab.report.looks import SHOWN, looks, style

TOLD = ["really lost", "measured", "asked"]
GREY = "#8a8f98"
TICKS = [0, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30]
"""Losses are compared by their ratio, and may be 0."""
KEY = alt.Legend(orient="bottom", symbolSize=300)
"""On the page too, which has the keys of methods elsewhere."""


def lost_panels(rows: pd.DataFrame) -> alt.FacetChart:
    """What was lost after each task from the second on, in nats: a panel for each line, with one axis for all."""
    last, most = int(rows["task"].max()), float(rows["mean"].max())
    ticks = [tick for tick in TICKS if tick <= 3.4 * most] or TICKS[:2]
    base = alt.Chart().encode(
        x=alt.X(
            "task:Q",
            title="after task",
            axis=alt.Axis(values=list(range(2, last + 1, -(-last // 10))), format="d"),
            scale=alt.Scale(domain=[2, max(3, last)], nice=False),
        ),
        y=alt.Y(
            "mean:Q",
            title="lost, nats",
            axis=alt.Axis(values=ticks, format="~g"),
            scale=alt.Scale(type="symlog", constant=0.01, domain=[0, max(most, ticks[-1])]),
        ),
        color=alt.condition(
            "datum.what == 'asked'", alt.value(GREY), alt.Color(**style(), scale=looks(rows)["color"], legend=None)
        ),
        opacity=alt.condition(SHOWN, alt.value(1), alt.value(0.1)),
    )
    line = base.mark_line().encode(
        strokeDash=alt.StrokeDash(
            **style("what"), scale=alt.Scale(domain=TOLD, range=[[1, 0], [6, 3], [2, 2]]), legend=KEY
        ),
        strokeWidth=alt.StrokeWidth(
            **{**style("of"), "type": "ordinal"}, scale=alt.Scale(domain=["mean", "worst"], range=[2.4, 1]), legend=KEY
        ),
    )
    point = (
        base.transform_filter("datum.what != 'asked'")
        .mark_circle(size=26)
        .encode(
            tooltip=[
                alt.Tooltip("label:N", title="method"),
                *(alt.Tooltip("what:N", title=" "), alt.Tooltip("of:N", title="of old tasks")),
                *(alt.Tooltip("task:Q", title="after task"), alt.Tooltip("mean:Q", title="nats", format=".4f")),
                alt.Tooltip("seeds:Q"),
            ],
        )
    )
    panel = alt.Facet("label:N", title=None, sort=list(rows["label"].unique()), header=alt.Header(labelLimit=200))
    return alt.layer(line, point).properties(width=200, height=150).facet(facet=panel, data=rows, columns=3)
