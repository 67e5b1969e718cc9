"""Axes: where a value stands between the two ends, and which values are written beside it."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from fopng.lab.report.words import shown
from fopng.lab.runs.config import Value

Tick = tuple[float, str]
"""A place between 0 and 1, and what is written there."""


class Scale(ABC):
    """One axis of a figure."""

    label: str

    @abstractmethod
    def place(self, value: Value) -> float:
        """Where a value stands: 0 at the start of the axis, 1 at its end."""

    @abstractmethod
    def ticks(self) -> list[Tick]:
        """What is written beside the axis."""


@final
@dataclass(frozen=True)
class Linear(Scale):
    """Equal steps for equal differences."""

    label: str
    low: float
    high: float
    whole: bool = False
    """Whether only whole numbers are written."""

    @classmethod
    def around(
        cls, label: str, values: Sequence[float], *, floor: float = -math.inf, top: float = math.inf
    ) -> "Linear":
        """An axis on which these values have room, cut where nothing can be.

        Args:
            label: what is measured.
            values: what must be on it; those that are not finite are passed over.
            floor: the least that there can be.
            top: the most that there can be.
        """
        there = [value for value in values if math.isfinite(value)] or [0.0]
        low, high = min(there), max(there)
        room = 0.06 * (high - low) or max(abs(high) * 0.1, 0.5)
        step = _step(high - low + 2 * room)
        return cls(label, max(floor, _down(low - room, step)), min(top, -_down(-high - room, step)))

    def place(self, value: Value) -> float:
        """In proportion."""
        return (_number(value) - self.low) / (self.high - self.low)

    def ticks(self) -> list[Tick]:
        """Round numbers."""
        step = _step(self.high - self.low)
        step = max(1.0, step) if self.whole else step
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        digits = max(0, -math.floor(math.log10(step) + 1e-9))
        return [(self.place(k * step), f"{k * step:.{digits}f}") for k in range(first, last + 1)]


@final
@dataclass(frozen=True)
class Logarithmic(Scale):
    """Equal steps for equal ratios."""

    label: str
    low: float
    high: float

    def place(self, value: Value) -> float:
        """In proportion to the logarithm."""
        return math.log(_number(value) / self.low) / math.log(self.high / self.low)

    def ticks(self) -> list[Tick]:
        """Powers of ten, thinned where there are many."""
        first, last = (
            math.ceil(math.log10(self.low) - 1e-9),
            math.floor(math.log10(self.high) + 1e-9),
        )
        every = max(1, math.ceil((last - first) / 6))
        return [(self.place(10.0**k), shown(10.0**k)) for k in range(first, last + 1, every)]


@final
@dataclass(frozen=True)
class Categories(Scale):
    """Values that are no numbers, or not all: one after another."""

    label: str
    values: tuple[Value, ...]

    def place(self, value: Value) -> float:
        """In the middle of its share."""
        return (self.values.index(value) + 0.5) / len(self.values)

    def ticks(self) -> list[Tick]:
        """Each value."""
        return [(self.place(value), shown(value)) for value in self.values]


def scale_of(label: str, values: Sequence[Value]) -> Scale:
    """The axis that suits the values of a setting: by ratios where they span much, one by one where some are no number."""
    numbers = [float(value) for value in values if isinstance(value, int | float)]
    low, high = min(numbers, default=0.0), max(numbers, default=0.0)
    # A None among numbers, or a 0 beside values of many sizes, has no place on either axis.
    if len(numbers) < len(values) or (low <= 0 < high and _sizes([value for value in numbers if value > 0]) > 30):
        return Categories(label, tuple(values))
    if low > 0 and high / low >= 30:
        room = (high / low) ** 0.03
        return Logarithmic(label, low / room, high * room)
    return Linear.around(label, numbers)


def _sizes(numbers: Sequence[float]) -> float:
    return max(numbers) / min(numbers)


def _number(value: Value) -> float:
    if not isinstance(value, int | float):
        raise TypeError(f"Expected a number on an axis of numbers, got {value!r}. Use Categories.")
    return float(value)


def _step(span: float) -> float:
    """A round number that divides the span into about five."""
    size = 10.0 ** math.floor(math.log10(span / 5))
    return next(factor * size for factor in (1, 2, 5, 10) if span / (factor * size) <= 6)


def _down(value: float, step: float) -> float:
    return math.floor(value / step + 1e-9) * step
