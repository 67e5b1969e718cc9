"""What a sweep tries: for each setting a value, a list of values, or a range to draw from."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, final, get_args

from fopng.lab.runs.config import FrozenMapping, Value
from fopng.lab.runs.settings import read_settings, read_value, unknown
from fopng.optim.settings import SettingInfo, settings_of

Choice = Mapping[str, Value]
"""A value for each setting that is tried."""


@final
@dataclass(frozen=True, kw_only=True)
class Range:
    """Numbers from `low` to `high`, both included."""

    low: Annotated[float, "the smallest."]
    high: Annotated[float, "the largest."]
    log: Annotated[bool, "whether the exponent is drawn evenly, as for a learning rate."] = False
    step: Annotated[float | None, "the distance of the numbers."] = None
    whole: Annotated[bool, "whether only whole numbers are drawn."] = False

    def __post_init__(self) -> None:
        if not -math.inf < self.low < self.high < math.inf:
            raise ValueError(f"Expected low below high in a range, got {self.low} and {self.high}.")
        if self.log and (self.low <= 0 or self.step is not None):
            raise ValueError(f"Expected a low above 0 and no step in a logarithmic range, got low = {self.low}.")


@final
@dataclass(frozen=True)
class Stage:
    """Settings that are tried together: all combinations of the lists. What has one value is fixed."""

    lists: Mapping[str, tuple[Value, ...]]
    ranges: Mapping[str, Range]

    @classmethod
    def read(cls, table: Mapping[str, object], known: Mapping[str, SettingInfo], place: str) -> Stage:
        """A table of a sweep's file, every value in its setting's type and range.

        Args:
            table: names with a value, a list of values, or `{low = 1e-5, high = 1e-1, log = true}`.
            known: the settings there are.
            place: where it stands, for messages.
        """
        if not table:
            raise ValueError(
                f"Expected a setting at least in {place}, got none. Write, for example, lr = [1e-3, 1e-2]."
            )
        for name in table:
            if name not in known:
                raise ValueError(unknown(f"a setting in {place}", name, known))
        ranges = {name: _range(known[name], each, place) for name, each in table.items() if isinstance(each, Mapping)}
        lists = {name: _values(known[name], each, place) for name, each in table.items() if name not in ranges}
        return cls(lists, ranges)

    @property
    def names(self) -> list[str]:
        """The settings that are set here."""
        return [*self.lists, *self.ranges]

    def __len__(self) -> int:
        """How many combinations the lists have."""
        return math.prod(map(len, self.lists.values()))

    def combinations(self) -> list[Choice]:
        """Every combination of the lists, the last one varying fastest."""
        for name in self.ranges:
            raise ValueError(
                f"Expected a list of values for {name} in a grid, got a range. "
                "Write a list, or say with a [search] table how values are drawn."
            )
        return [
            FrozenMapping(dict(zip(self.lists, row, strict=True))) for row in itertools.product(*self.lists.values())
        ]


def _values(info: SettingInfo, written: object, place: str) -> tuple[Value, ...]:
    values: Sequence[object] = written if isinstance(written, list) else [written]
    found = tuple(read_value(info, value) for value in values)
    if not found or len(set(found)) < len(found):
        raise ValueError(f"Expected a value at least, and each once, for {info.name} in {place}, got {written!r}.")
    return found


def _range(info: SettingInfo, written: Mapping[str, object], place: str) -> Range:
    known = {name: each for name, each in settings_of(Range).items() if name != "whole"}
    numbers: dict[str, Any] = read_settings(written, known, f"the range for {info.name} in {place}")
    if not {"low", "high"} <= set(numbers):
        example = "{low = 1e-5, high = 1e-1, log = true}"
        raise ValueError(f"Expected a range such as {example} for {info.name} in {place}, got {dict(written)!r}.")
    for end in ("low", "high"):
        read_value(info, numbers[end])
    return Range(**numbers, whole=int in (info.type, *get_args(info.type)))
