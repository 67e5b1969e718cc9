"""Figures as SVG for a page: small, in the page's colours, every name escaped."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import final

from fopng.lab.report.charts import Bars, Chart, Curves, Scatter, Series, Spot
from fopng.lab.report.families import Family
from fopng.lab.report.lines import Line
from fopng.lab.report.looks import Look, Looks
from fopng.lab.report.placing import Box, place_labels
from fopng.lab.report.scales import Scale, Tick
from fopng.lab.report.words import encodable, number, percent, plain, shortened

WIDTH, HEIGHT = 520.0, 326.0
LEFT, RIGHT, TOP, BOTTOM = 68.0, 20.0, 10.0, 58.0
ROW, NAMES, VALUES = 25.0, 158.0, 62.0
LETTER = 8.6
"""The width of a letter at the size that phones show."""

MANY = 10
"""Lines beyond which bands would hide one another: then only the line that is pointed at has its band.

So would names: then points have a legend too."""


@final
@dataclass(frozen=True)
class Dress:
    """What the lines of a page look like, and where it speaks of them."""

    looks: Looks
    methods: Mapping[str, int]
    """A number for each method, which its switch has too."""
    evidence: Mapping[tuple[str, ...], str]
    """The identifier of the runs behind a line, by the line's key."""


def draw(chart: Chart, dress: Dress) -> str:
    """The figure as an `svg` element."""
    if isinstance(chart, Bars):
        return _bars(chart, dress)
    if isinstance(chart, Scatter):
        return _svg(HEIGHT, chart.title, _frame(chart.x, chart.y) + _scatter(chart, dress))
    # For the script, which fits the axis to the lines that are switched on.
    ends = f"{chart.y.low:g} {chart.y.high:g}"
    frame = f' data-frame="{LEFT:g} {TOP:g} {WIDTH - RIGHT:g} {HEIGHT - BOTTOM:g} {ends}"'
    return _svg(HEIGHT, chart.title, _frame(chart.x, chart.y) + _curves(chart, dress), frame)


def key(look: Look, family: Family) -> str:
    """A line's stroke and marker, for legends and tables."""
    dashes = _dashes(look)
    marker = f'<path class="k" d="M15,6{look.marker.path}"/>'
    classes = _classes(look, family)
    stroke = f'<path class="l"{dashes} d="M0,6h30"/>'
    return f'<svg class="key" viewBox="0 0 30 12" aria-hidden="true"><g class="{classes}">{stroke}{marker}</g></svg>'


def _curves(chart: Curves, dress: Dress) -> str:
    many = ' class="many"' if len(chart.series) > MANY else ""
    places = [_at(chart.x.place(value), 0.0) for value in chart.papers]
    papers = "".join(f'<path class="front" stroke-dasharray="2 4" d="M{_pair(place)}V{TOP:g}"/>' for place in places)
    return f"{papers}<g{many}>{''.join(_one_curve(chart, series, dress) for series in reversed(chart.series))}</g>"


def _one_curve(chart: Curves, series: Series, dress: Dress) -> str:
    points = [_at(chart.x.place(value), chart.y.place(mean)) for value, mean in series.points]
    band = series.band(chart.confidence)
    there = [_at(chart.x.place(value), chart.y.place(high)) for value, _, high in band]
    back = [_at(chart.x.place(value), chart.y.place(low)) for value, low, _ in reversed(band)]
    look = dress.looks[series.label]
    area = f'<path class="b" d="M{"L".join(map(_pair, there + back))}z"/>' if len(band) > 1 else ""
    stroke = f'<path class="l"{_dashes(look)} d="M{"L".join(map(_pair, points))}"/>' if len(points) > 1 else ""
    last = f"{series.label}: {number(series.points[-1][1])} %" if points else series.label
    if series.lines:
        return _group(series.line, look, dress, last, area + stroke) + _answers(chart, series, dress)
    return _group(series.line, look, dress, last, area + stroke + _markers(look, points))


def _answers(chart: Curves, series: Series, dress: Dress) -> str:
    """A marker of its own for each point, since each has runs of its own."""
    look = dress.looks[series.label]
    drawn = []
    for line, value, estimate in zip(series.lines, series.values, series.estimates, strict=True):
        if estimate.count:
            place = _at(chart.x.place(value), chart.y.place(100 * estimate.mean))
            drawn.append(_group(line, look, dress, f"{line.label}: {percent(estimate)} %", _markers(look, [place])))
    return "".join(drawn)


def _scatter(chart: Scatter, dress: Dress) -> str:
    fronts = "".join(_front(chart, front) for front in chart.fronts)
    places = {spot.line.key: _spot(chart, spot) for spot in chart.spots}
    names = {spot.line.key: shortened(encodable(spot.label), 22) for spot in chart.spots}
    room = Box(LEFT, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM)
    widths = [(places[spot.line.key], len(names[spot.line.key]) * LETTER) for spot in chart.spots]
    strokes = [stroke for front in chart.fronts for stroke in _steps(chart, front)]
    strokes += [stroke for spot in chart.spots for stroke in _whiskers(chart, spot)]
    spots, labels = [], []
    for spot, where in zip(chart.spots, place_labels(widths, room, strokes), strict=True):
        look, point = dress.looks[spot.label], places[spot.line.key]
        title = f"{spot.label}: forgetting {percent(spot.x)} %, learnt to {percent(spot.y)} %"
        whiskers = "".join(f"M{_pair((w.left, w.top))}L{_pair((w.right, w.bottom))}" for w in _whiskers(chart, spot))
        drawn = f'<path class="w" d="{whiskers}"/>' if whiskers else ""
        spots.append(_group(spot.line, look, dress, title, drawn + _markers(look, [point])))
        if where is not None:
            lead = (
                ""
                if where.lead is None
                else f'<path class="w" stroke-dasharray="2 2" d="M{_pair(point)}L{_pair(where.lead)}"/>'
            )
            text = _text(where.x, where.y, names[spot.line.key], f"n {where.anchor}".strip())
            labels.append(_group(spot.line, look, dress, title, lead + text))
    # Names last: no stroke runs through them.
    return fronts + "".join(spots + labels)


def _spot(chart: Scatter, spot: Spot) -> tuple[float, float]:
    return _at(chart.x.place(100 * spot.x.mean), chart.y.place(100 * spot.y.mean))


def _front(chart: Scatter, front: Sequence[Spot]) -> str:
    """Steps: to forget less than one member is to learn no more than the one before it."""
    places = [_spot(chart, spot) for spot in front]
    path = f"M{_pair(places[0])}" + "".join(f"H{_short(x)}V{_short(y)}" for x, y in places[1:])
    dashes = "" if front[0].line.family is Family.WITHOUT_DATA else ' stroke-dasharray="3 4"'
    return f'<path class="front"{dashes} d="{path}"/>'


def _steps(chart: Scatter, front: Sequence[Spot]) -> Iterable[Box]:
    for (x, y), (next_x, next_y) in pairwise(_spot(chart, spot) for spot in front):
        yield Box(x, y, next_x, y)
        yield Box(next_x, next_y, next_x, y)


def _whiskers(chart: Scatter, spot: Spot) -> list[Box]:
    x, y = _spot(chart, spot)
    across, up = spot.ends(chart.confidence)
    lying = [_at(chart.x.place(end), 0.0)[0] for end in across]
    standing = [_at(0.0, chart.y.place(end))[1] for end in reversed(up)]
    found = [Box(lying[0], y, lying[1], y)] if lying else []
    return found + ([Box(x, standing[0], x, standing[1])] if standing else [])


def _bars(chart: Bars, dress: Dress) -> str:
    room = WIDTH - NAMES - VALUES
    drawn = []
    for row, (line, estimate) in enumerate(chart.bars):
        middle = TOP + ROW * (row + 0.5)
        length = max(1.0, room * chart.x.place(estimate.mean))
        look = dress.looks[line.label]
        name = shortened(encodable(line.label), 17)
        bar = f'<rect class="k" x="{NAMES:g}" y="{_short(middle - 7)}" width="{_short(length)}" height="14"/>'
        texts = _text(NAMES - 8, middle + 4.5, name, "n e") + _text(
            NAMES + length + 6, middle + 4.5, plain(estimate.mean), "n"
        )
        title = f"{line.label}: {plain(estimate.mean)} {chart.x.label}"
        drawn.append(_group(line, look, dress, title, bar + texts))
    unit = _text(NAMES + room / 2, TOP + ROW * (len(chart.bars) + 0.75), chart.x.label, "m")
    return _svg(2 * TOP + ROW * (len(chart.bars) + 1), chart.title, "".join(drawn) + unit)


def _svg(height: float, title: str, inside: str, frame: str = "") -> str:
    size = f'viewBox="0 0 {WIDTH:g} {_short(height)}"{frame}'
    return f'<svg class="chart" {size} role="img" aria-label="{escape(encodable(title))}">{inside}</svg>'


def _frame(x: Scale, y: Scale) -> str:
    right, floor = WIDTH - RIGHT, HEIGHT - BOTTOM
    rows = [(_at(0.0, place)[1], word) for place, word in y.ticks()]
    columns = _apart([(_at(place, 0.0)[0], word) for place, word in x.ticks()])
    grid = "".join(f"M{LEFT:g},{_short(height)}H{right:g}" for height, _ in rows)
    marks = "".join(f"M{_short(column)},{floor:g}v4" for column, _ in columns)
    texts = [_text(LEFT - 8, height + 4.5, word, "y e") for height, word in rows]
    texts += [_text(column, floor + 26, word, "m") for column, word in columns]
    texts.append(_text((LEFT + right) / 2, HEIGHT - 8, x.label, "m"))
    middle = (TOP + floor) / 2
    texts.append(f'<text class="m" transform="translate(15 {_short(middle)}) rotate(-90)">{escape(y.label)}</text>')
    axis = f'<path class="axis" d="M{LEFT:g},{floor:g}H{right:g}{marks}"/>'
    return f'<path class="grid" d="{grid}"/>{axis}{"".join(texts)}'


def _apart(ticks: Iterable[Tick]) -> list[Tick]:
    """Ticks whose words do not run into one another."""
    kept: list[Tick] = []
    end = -math.inf
    for place, word in ticks:
        half = len(word) * LETTER / 2 + 4
        if place - half >= end:
            kept.append((place, word))
            end = place + half
    return kept


def _group(line: Line, look: Look, dress: Dress, title: str, inside: str) -> str:
    owner = f'data-m="{dress.methods[line.method]}" data-r="{dress.evidence[line.key]}"'
    words = escape(encodable(title), quote=False)
    return f'<g class="{_classes(look, line.family)}" {owner}><title>{words}</title>{inside}</g>'


def _classes(look: Look, family: Family) -> str:
    """A marker that is hollow stands for a method that keeps data."""
    return f"s c{look.colour}" + ("" if family is Family.WITHOUT_DATA else " hollow")


def _markers(look: Look, points: Iterable[tuple[float, float]]) -> str:
    return f'<path class="k" d="{"".join(f"M{_pair(point)}{look.marker.path}" for point in points)}"/>'


def _dashes(look: Look) -> str:
    return f' stroke-dasharray="{" ".join(f"{length:g}" for length in look.dashes)}"' if look.dashes else ""


def _text(x: float, y: float, word: str, classes: str) -> str:
    return f'<text class="{classes}" x="{_short(x)}" y="{_short(y)}">{escape(word, quote=False)}</text>'


def _at(across: float, up: float) -> tuple[float, float]:
    """The place in the drawing of fractions of both axes; what lies outside is moved to the edge."""
    across, up = min(max(across, 0.0), 1.0), min(max(up, 0.0), 1.0)
    return LEFT + across * (WIDTH - LEFT - RIGHT), TOP + (1 - up) * (HEIGHT - TOP - BOTTOM)


def _pair(point: tuple[float, float]) -> str:
    return f"{_short(point[0])},{_short(point[1])}"


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
