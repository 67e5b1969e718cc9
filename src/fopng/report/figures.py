"""Figures as SVG that takes the page's colours, and carries no name that a user chose."""

import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from fopng.report.summary import Line

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8f7a00", "#56b4e9", "#7f7f7f", "#e69f00")
"""Okabe and Ito's, for eyes that tell few colours apart; the dashes tell the lines apart in black and white."""

DASHES = ((), (5.0, 2.0), (6.0, 2.0, 1.0, 2.0), (1.0, 1.5))
"""Lengths of strokes and gaps; none for a line without gaps."""

_INK = "#0a0b0c"


@final
@dataclass(frozen=True)
class Look:
    """How a line is drawn."""

    colour: str
    dashes: tuple[float, ...]


def looks_of(labels: Sequence[str]) -> dict[str, Look]:
    """A look for each label, the same in every figure of a page; neighbours differ in colour and in dashes."""
    return {
        label: Look(PALETTE[index % len(PALETTE)], DASHES[(index + index // len(PALETTE)) % len(DASHES)])
        for index, label in enumerate(sorted(set(labels)))
    }


def accuracy_curves(lines: Sequence[Line], looks: Mapping[str, Look], name: str) -> str:
    """`A_k` after each task, in percent, with 68 % bands over seeds.

    Args:
        lines: what to draw.
        looks: how each label is drawn, from `looks_of`.
        name: a word that makes the figure's identifiers its own on the page.
    """
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "font.size": 12}):
        figure = Figure(figsize=(6.0, 3.9), layout="constrained")
        axes = figure.add_subplot()
        for line in lines:
            look = looks[line.label]
            tasks = range(1, len(line.curve) + 1)
            means = [100 * point.mean for point in line.curve]
            halves = [100 * point.half_width(0.68) for point in line.curve]
            axes.plot(
                tasks,
                means,
                color=look.colour,
                dashes=look.dashes or (None, None),
                linewidth=2,
                marker="o",
                markersize=4,
            )
            if not any(map(math.isnan, halves)):
                low, high = ([mean + sign * half for mean, half in zip(means, halves, strict=True)] for sign in (-1, 1))
                axes.fill_between(tasks, low, high, color=look.colour, alpha=0.18, linewidth=0)
        axes.set_xlabel("tasks learnt", color=_INK)
        axes.set_ylabel("mean accuracy, tasks seen, %", color=_INK)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(color=_INK, alpha=0.12)
        axes.tick_params(color=_INK, labelcolor=_INK)
        axes.spines[:].set_color(_INK)
        axes.spines[["top", "right"]].set_visible(False)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    return _for_page(file.getvalue(), name)


def _for_page(svg: str, name: str) -> str:
    """Only the drawing, with identifiers of its own, in the colour of the text around it."""
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg))
    return svg.replace(_INK, "currentColor")
