"""How lines are told apart: a method has one colour and one shape in all charts."""

from typing import Any

import altair as alt
import pandas as pd

from fopng.optim.registry import METHODS

COLOURS = ("#3579dc", "#e0632b", "#1f9663", "#8b63dd", "#b07d12", "#d0499f", "#0f93a8", "#d6455d", "#74883b", "#7f7f8c")
"""Each stands out from white and from near black, at 3.5 to 1 or more."""
SHAPES = ("circle", "square", "triangle-up", "diamond")
SHOWN = "isolated == '' || datum.method == isolated"
"""Whether the page shows a datum in full: a click there isolates a method."""
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])


def looks(rows: pd.DataFrame) -> dict[str, alt.Scale]:
    """Colour, dash and shape of each label: a method has one colour and one shape in all charts."""
    labels = rows.drop_duplicates("label")[["label", "method"]]
    places = [place_of(method) for method in labels["method"]]
    nth = labels.groupby("method").cumcount()
    domain = list(labels["label"])
    return {
        "color": alt.Scale(domain=domain, range=[COLOURS[place % len(COLOURS)] for place in places]),
        "shape": alt.Scale(domain=domain, range=[SHAPES[place // len(COLOURS) % len(SHAPES)] for place in places]),
        "dash": alt.Scale(domain=domain, range=[DASHES[n % len(DASHES)] for n in nth]),
    }


def style(name: str = "label") -> dict[str, Any]:
    """What is common to the charts of lines: their colours, by method."""
    return {"field": name, "type": "nominal", "title": None}


def place_of(method: str) -> int:
    """Where a method stands in the catalogue; one that is not there has a place by its name."""
    return list(METHODS).index(method) if method in METHODS else len(METHODS) + sum(map(ord, method)) % 7
