"""Figures as values: what is drawn, apart from how. The page and the files draw the same."""

import math
from dataclasses import dataclass
from typing import final

from fopng.lab.report.lines import Line
from fopng.lab.report.scales import Linear, Scale
from fopng.lab.runs.config import Value, canonical_json
from fopng.lab.runs.findings import rank
from fopng.lab.runs.scores import Estimate

Entry = tuple[Line, Estimate]
"""A number, and the line whose runs are behind it."""


@final
@dataclass(frozen=True)
class Series:
    """Points of one line, in percent, joined by strokes."""

    line: Line
    label: str
    values: tuple[Value, ...]
    """Along the x axis."""
    estimates: tuple[Estimate, ...]
    lines: tuple[Line, ...] = ()
    """Those behind each point, where each has another."""

    @property
    def entries(self) -> dict[str, Entry]:
        """What stands at each value, by the value's canonical text."""
        owners = self.lines or [self.line] * len(self.values)
        entries = zip(owners, self.estimates, strict=True)
        return dict(zip(map(canonical_json, self.values), entries, strict=True))

    @property
    def points(self) -> list[tuple[Value, float]]:
        """Where there is a mean."""
        pairs = zip(self.values, self.estimates, strict=True)
        return [(value, 100 * estimate.mean) for value, estimate in pairs if estimate.count]

    def band(self, confidence: float) -> list[tuple[Value, float, float]]:
        """The interval at each point that has one."""
        found = []
        for value, estimate in zip(self.values, self.estimates, strict=True):
            if estimate.count > 1:
                half = estimate.half_width(confidence)
                found.append((value, 100 * (estimate.mean - half), 100 * (estimate.mean + half)))
        return found


@final
@dataclass(frozen=True)
class Curves:
    """Lines over an axis, with bands."""

    name: str
    """A word for files and identifiers."""
    title: str
    x: Scale
    y: Linear
    series: tuple[Series, ...]
    confidence: float
    note: str
    papers: tuple[Value, ...] = ()
    """The values along the x axis that the paper uses."""

    @property
    def columns(self) -> list[Value]:
        """Every value along the x axis, in order."""
        values = {canonical_json(value): value for series in self.series for value in series.values}
        return sorted(values.values(), key=rank)

    @property
    def rows(self) -> list[tuple[Series, list[Entry | None]]]:
        """The figure as a table: for each series an entry a column; None where it has no such point."""
        columns = [canonical_json(value) for value in self.columns]
        entries = [(series, series.entries) for series in self.series]
        return [(series, [some.get(column) for column in columns]) for series, some in entries]


@final
@dataclass(frozen=True)
class Spot:
    """One line as a point, with its intervals."""

    line: Line
    x: Estimate
    y: Estimate

    @property
    def label(self) -> str:
        """The line's."""
        return self.line.label

    def ends(self, confidence: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Where the whiskers along x and along y end, in percent; none where one seed, or none, gives no interval."""
        return _ends(self.x, confidence), _ends(self.y, confidence)


@final
@dataclass(frozen=True)
class Scatter:
    """A point a line, and for each family the points that no other is better than in both."""

    name: str
    title: str
    x: Scale
    y: Scale
    spots: tuple[Spot, ...]
    fronts: tuple[tuple[Spot, ...], ...]
    confidence: float
    note: str


@final
@dataclass(frozen=True)
class Bars:
    """A bar a line."""

    name: str
    title: str
    x: Scale
    bars: tuple[tuple[Line, Estimate], ...]
    note: str


Chart = Curves | Scatter | Bars


def _ends(estimate: Estimate, confidence: float) -> tuple[float, ...]:
    half = estimate.half_width(confidence)
    return () if math.isnan(half) else (100 * (estimate.mean - half), 100 * (estimate.mean + half))
