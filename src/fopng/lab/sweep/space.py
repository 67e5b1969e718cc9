"""What a sweep tries: for each setting a value, a list of values, or a range to draw from."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from fopng.lab.runs.config import FrozenMapping, Value
from fopng.lab.runs.settings import read_settings
from fopng.optim.settings import SettingInfo

Choice = Mapping[str, Value]
"""A value for each setting that is tried."""

_RANGE_MEMBERS = {"low", "high", "log", "step"}


@final
@dataclass(frozen=True, kw_only=True)
class Range:
    """Numbers from `low` to `high`, both included; whole ones where both are."""

    low: float
    high: float
    log: bool = False
    """Whether the exponent is drawn evenly, as for a learning rate."""
    step: float | None = None

    def __post_init__(self) -> None:
        if not -math.inf < self.low < self.high < math.inf:
            raise ValueError(f"Expected low below high in a range, got {self.low} and {self.high}.")
        if self.log and (self.low <= 0 or self.step is not None):
            raise ValueError(f"Expected a low above 0 and no step in a logarithmic range, got low = {self.low}.")

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are drawn."""
        return isinstance(self.low, int) and isinstance(self.high, int)


@final
@dataclass(frozen=True)
class Stage:
    """Settings that are tried together: all combinations of the lists. What has one value is fixed."""

    lists: Mapping[str, tuple[Value, ...]]
    ranges: Mapping[str, Range]

    @classmethod
    def read(cls, table: Mapping[str, object], place: str) -> Stage:
        """A table of a sweep's file.

        Args:
            table: names with a value, a list of values, or `{low = 1e-5, high = 1e-1, log = true}`.
            place: where it stands, for messages.
        """
        lists: dict[str, tuple[Value, ...]] = {}
        ranges: dict[str, Range] = {}
        for name, written in table.items():
            where = f"{name} in {place}"
            if isinstance(written, Mapping):
                ranges[name] = _range(written, where)
            else:
                lists[name] = _values(written, where)
        if not lists and not ranges:
            raise ValueError(
                f"Expected a setting at least in {place}, got none. Write, for example, lr = [1e-3, 1e-2]."
            )
        return cls(lists, ranges)

    def typed(self, settings: Mapping[str, SettingInfo], owner: str) -> Stage:
        """The same with every value in its setting's type; what is no setting, or cannot be one's value, is refused."""
        for name in self.ranges:
            read_settings({name: self.ranges[name].low}, settings, owner)
            read_settings({name: self.ranges[name].high}, settings, owner)
        lists: dict[str, tuple[Value, ...]] = {}
        for name, values in self.lists.items():
            lists[name] = tuple(read_settings({name: value}, settings, owner)[name] for value in values)
        return Stage(lists, self.ranges)

    @property
    def names(self) -> list[str]:
        """The settings that are set here."""
        return [*self.lists, *self.ranges]

    def __len__(self) -> int:
        """How many combinations the lists have."""
        return math.prod(map(len, self.lists.values()))

    def combinations(self) -> list[Choice]:
        """Every combination of the lists, the last one varying fastest."""
        if self.ranges:
            name = next(iter(self.ranges))
            raise ValueError(
                f"Expected a list of values for {name} in a grid, got a range. "
                "Write a list, or say with a [search] table how values are drawn."
            )
        return [
            FrozenMapping(dict(zip(self.lists, values, strict=True)))
            for values in itertools.product(*self.lists.values())
        ]


def _values(written: object, where: str) -> tuple[Value, ...]:
    values = written if isinstance(written, list) else [written]
    if not values or not all(isinstance(value, bool | int | float | str) for value in values):
        raise ValueError(f"Expected a value, a list of values or a range for {where}, got {written!r}.")
    if len({(type(value) is bool, value) for value in values}) < len(values):
        raise ValueError(f"Expected each value once for {where}, got {written!r}.")
    return tuple(values)


def _range(written: Mapping[str, object], where: str) -> Range:
    numbers = all(
        isinstance(written.get(name, 0), int | float) and not isinstance(written.get(name, 0), bool)
        for name in ("low", "high", "step")
    )
    if (
        not {"low", "high"} <= set(written) <= _RANGE_MEMBERS
        or not numbers
        or not isinstance(written.get("log", False), bool)
    ):
        raise ValueError(
            f"Expected a range such as {{low = 1e-5, high = 1e-1, log = true}} for {where}, got {dict(written)!r}."
        )
    try:
        return Range(**written)  # type: ignore[arg-type]  # checked above
    except ValueError as error:
        raise ValueError(f"{error} See {where}.") from error
