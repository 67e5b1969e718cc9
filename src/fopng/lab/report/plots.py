"""The figures of a page, drawn by matplotlib."""

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fopng.lab.report.charts import Bars, Chart, Curves, Scatter
from fopng.lab.report.families import Family
from fopng.lab.report.lines import Line
from fopng.lab.report.looks import PALETTE, Look, Looks
from fopng.lab.report.page import lightest, lightest_of_grids
from fopng.lab.report.scales import Scale
from fopng.lab.report.variations import Grid
from fopng.lab.report.words import encodable, plain, shortened, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Rectangle

INK, RULE = "#1d2126", "#dfe3e8"


def plot(chart: Chart, looks: Looks) -> "Figure":
    """A chart as a figure, its legend beside it."""
    from matplotlib.figure import Figure

    rows = len(chart.bars) if isinstance(chart, Bars) else 0
    figure = Figure(figsize=(7.2, max(2.4, 0.8 + 0.26 * rows) if rows else 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(one_line(chart.title), fontsize=10, loc="left")
    if isinstance(chart, Bars):
        _bars(axes, chart, looks)
        return figure
    _frame(axes, chart.x, chart.y)
    named = _curves(axes, chart, looks) if isinstance(chart, Curves) else _scatter(axes, chart, looks)
    legend = axes.legend(
        [handle for handle, _ in named],
        [str(index) for index in range(len(named))],
        loc="upper left",
        bbox_to_anchor=(1.01, 1),
        frameon=False,
        fontsize=8,
        handlelength=3.2,
    )
    # A name that begins with an underscore is left out of a legend, so names are set afterwards.
    for text, (_, name) in zip(legend.get_texts(), named, strict=True):
        text.set_text(shortened(one_line(name), 40))
    return figure


def _frame(axes: "Axes", x: Scale, y: Scale) -> None:
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)
    for axis, scale in ((axes.xaxis, x), (axes.yaxis, y)):
        ticks = scale.ticks()
        axis.set_ticks([place for place, _ in ticks], [word for _, word in ticks])
        axis.set_label_text(one_line(scale.label), color=INK)
    crowded = len(x.ticks()) > 9
    axes.tick_params(axis="x", labelrotation=60 if crowded else 0)
    axes.tick_params(color=INK, labelcolor=INK, labelsize=8)
    axes.grid(axis="y", color=RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _curves(axes: "Axes", chart: Curves, looks: Looks) -> list[tuple["Line2D", str]]:
    for value in chart.papers:
        axes.axvline(chart.x.place(value), color=INK, linestyle=(0, (1, 3)), linewidth=1)
    named = []
    for series in chart.series:
        look = looks[series.label]
        x = [chart.x.place(value) for value, _ in series.points]
        [handle] = axes.plot(x, [chart.y.place(mean) for _, mean in series.points], **_style(look, series.line))
        band = series.band(chart.confidence)
        axes.fill_between(
            [chart.x.place(value) for value, _, _ in band],
            [_inside(chart.y.place(low)) for _, low, _ in band],
            [_inside(chart.y.place(high)) for _, _, high in band],
            color=PALETTE[look.colour],
            alpha=0.13,
            linewidth=0,
        )
        named.append((handle, series.label))
    return named


def _scatter(axes: "Axes", chart: Scatter, looks: Looks) -> list[tuple["Line2D", str]]:
    for front in chart.fronts:
        places = [(chart.x.place(100 * spot.x.mean), chart.y.place(100 * spot.y.mean)) for spot in front]
        style = "-" if front[0].line.family is Family.WITHOUT_DATA else ":"
        axes.step(
            [x for x, _ in places], [y for _, y in places], where="post", color=INK, linewidth=0.9, linestyle=style
        )
    named = []
    for spot in chart.spots:
        look = looks[spot.label]
        x, y = chart.x.place(100 * spot.x.mean), chart.y.place(100 * spot.y.mean)
        across, up = spot.ends(chart.confidence)
        for places in (
            [(_inside(chart.x.place(end)), y) for end in across],
            [(x, _inside(chart.y.place(end))) for end in up],
        ):
            axes.plot(*_columns(places), color=PALETTE[look.colour], alpha=0.5, linewidth=1)
        [handle] = axes.plot([x], [y], **{**_style(look, spot.line), "linestyle": "none", "markersize": 7})
        named.append((handle, spot.label))
    return named


def _bars(axes: "Axes", chart: Bars, looks: Looks) -> None:
    places = range(len(chart.bars))
    lengths = [estimate.mean for _, estimate in chart.bars]
    colours = [PALETTE[looks[line.label].colour] for line, _ in chart.bars]
    drawn = axes.barh(places, lengths, color=colours, height=0.62)
    axes.bar_label(drawn, [plain(length) for length in lengths], padding=4, fontsize=8, color=INK)
    axes.set_yticks(places, [shortened(one_line(line.label), 40) for line, _ in chart.bars], fontsize=8, color=INK)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set_xlabel(chart.x.label, color=INK, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="x", labelsize=8)


def plot_matrices(lines: Sequence[Line]) -> "Figure":
    """The accuracy matrices of several lines, side by side."""
    low = 100 * lightest(lines)
    figure, places = _side_by_side(len(lines))
    for axes, line in zip(places, lines, strict=True):
        tasks = max(len(line.matrix), *(len(row) for row in line.matrix))
        means = [[100 * entry.mean for entry in row] + [math.nan] * (tasks - len(row)) for row in line.matrix]
        numbers = [str(task + 1) for task in range(tasks)]
        _heat(axes, means, low, numbers[: len(means)], numbers)
        axes.set_title(shortened(one_line(line.label), 28), fontsize=8)
    return figure


def plot_grids(grids: Sequence[Grid]) -> "Figure":
    """The accuracy of several methods over two settings each, side by side; a frame around what was chosen."""
    low = 100 * lightest_of_grids(grids)
    figure, places = _side_by_side(len(grids))
    for axes, grid in zip(places, grids, strict=True):
        means = [[math.nan if cell is None else 100 * cell.accuracy.mean for cell in row] for row in grid.cells]
        names = [[shortened(one_line(shown(value)), 8) for value in values] for values in (grid.rows, grid.columns)]
        _heat(axes, means, low, *names)
        for k, row in enumerate(grid.cells):
            for j, cell in enumerate(row):
                if cell is not None and cell.chosen:
                    axes.add_patch(_outline(j, k))
        axes.set_title(textwrap.fill(shortened(one_line(grid.label), 84), 28), fontsize=8)
        axes.set_ylabel(shortened(one_line(grid.down), 24), fontsize=7, color=INK)
        axes.set_xlabel(shortened(one_line(grid.across), 24), fontsize=7, color=INK)
    return figure


def _side_by_side(count: int) -> "tuple[Figure, list[Axes]]":
    from matplotlib.figure import Figure

    columns = min(4, count)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(2.3 * columns, 2.4 * rows), layout="constrained")
    return figure, [figure.add_subplot(rows, columns, number) for number in range(1, count + 1)]


def _heat(
    axes: "Axes", means: Sequence[Sequence[float]], low: float, rows: Sequence[str], columns: Sequence[str]
) -> None:
    axes.imshow(means, vmin=low, vmax=100, cmap="Blues", aspect="auto")
    for k, row in enumerate(means):
        for j, mean in enumerate(row):
            if not math.isnan(mean):
                ink = "white" if mean > low + 0.62 * (100 - low) else INK
                axes.text(j, k, f"{mean:.0f}", ha="center", va="center", fontsize=7, color=ink)
    axes.set_xticks(range(len(columns)), columns, fontsize=7)
    axes.set_yticks(range(len(rows)), rows, fontsize=7)
    axes.spines[:].set_visible(False)


def _outline(across: int, down: int) -> "Rectangle":
    from matplotlib.patches import Rectangle

    return Rectangle((across - 0.47, down - 0.47), 0.94, 0.94, fill=False, edgecolor=INK, linewidth=1.6)


def _style(look: Look, line: Line) -> dict[str, Any]:
    colour = PALETTE[look.colour]
    hollow = line.family is not Family.WITHOUT_DATA
    return {
        "color": colour,
        "linestyle": (0, [length / 2 for length in look.dashes]) if look.dashes else "-",
        "linewidth": 1.8,
        "marker": look.marker.letter,
        "markersize": 5,
        "markerfacecolor": "white" if hollow else colour,
        "markeredgecolor": colour,
    }


def one_line(text: str) -> str:
    """A name without what cannot be drawn."""
    return "".join(letter if letter.isprintable() else " " for letter in encodable(text))


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _inside(place: float) -> float:
    return min(1.0, max(0.0, place))
