"""The figure of asked and delivered."""

from __future__ import annotations

from typing import TypeVar

import altair as alt
import pandas as pd

from fopng.lab.report.files import drawn
from fopng.lab.report.looks import COLOURS
from reproduction.tolerance.contenders import CONTENDERS, PLAIN
from reproduction.tolerance.records import load_records
from reproduction.tolerance.streams import STREAMS
from reproduction.tolerance.summary import ASKED, FOLDER, Grid, lost_of

ASKED_ENDS, LOST_ENDS = (0.025, 0.36), (0.003, 3.0)
TICKS = [0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0]
TITLES = {"asked": "asked, nats", "lost": "really lost, nats"}
GREY = "#7f7f8c"

Axis = TypeVar("Axis", alt.X, alt.Y)


def figures() -> dict[str, str]:
    """The figure by its name below `docs/static`, once there are results."""
    records = load_records(FOLDER)
    return {"finding-tolerance.svg": figure(Grid(records))} if records else {}


def delivered_frame(grid: Grid) -> pd.DataFrame:
    """What was asked and what was lost, a row a stream and tolerance, and what plain training loses there."""
    rows = [
        {
            "stream": STREAMS[stream].title,
            "asked": CONTENDERS[name].asked,
            "lost": grid.estimate(stream, name, lost_of).mean,
            "plain": grid.estimate(stream, PLAIN, lost_of).mean,
        }
        for stream in grid.streams()
        for name in ASKED
        if grid.of(stream, name)
    ]
    return pd.DataFrame(rows, columns=["stream", "asked", "lost", "plain"])


def figure(grid: Grid) -> str:
    """An SVG: delivered over asked, stream by stream; the band is from half of what was asked to twice that."""
    rows = delivered_frame(grid)
    titles = [STREAMS[stream].title for stream in grid.streams()]
    colour = alt.Color("stream:N", scale=alt.Scale(domain=titles, range=COLOURS[: len(titles)]), title=None)
    lines = alt.Chart(rows).encode(x=_axis(alt.X, "asked", ASKED_ENDS), y=_axis(alt.Y, "lost", LOST_ENDS), color=colour)
    chart = _band() + lines.mark_line(strokeWidth=2) + lines.mark_point(filled=True, size=60, opacity=1)
    return drawn(chart.properties(width=420, height=320).to_dict(), "svg").decode()


def _band() -> alt.LayerChart:
    ends = pd.DataFrame({"asked": ASKED_ENDS}).assign(low=lambda row: row.asked / 2, high=lambda row: 2 * row.asked)
    base = alt.Chart(ends).encode(x="asked:Q")
    area = base.mark_area(opacity=0.15, color=GREY, clip=True).encode(y="low:Q", y2="high:Q")
    even: alt.LayerChart = area + base.mark_line(strokeDash=[4, 4], strokeWidth=1, color=GREY).encode(y="asked:Q")
    return even


def _axis(kind: type[Axis], name: str, ends: tuple[float, float]) -> Axis:
    """A logarithmic axis from end to end, with few ticks."""
    scale = alt.Scale(type="log", domain=ends, nice=False, clamp=True)
    ticks = [tick for tick in TICKS if ends[0] <= tick <= ends[1]]
    return kind(f"{name}:Q", scale=scale, title=TITLES[name], axis=alt.Axis(values=ticks, format="~g"))
