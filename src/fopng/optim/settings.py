"""Settings, each declared once: type, default, range and meaning. Signatures, checks, `--set` and tables are derived from it."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from math import inf
from numbers import Real
from types import NoneType
from typing import Any, Literal, TypeVar, dataclass_transform, final, get_args, get_origin, get_type_hints

import torch

T = TypeVar("T")


LARGEST = 2**63
"""Whole numbers that torch can hold are below it."""


LARGEST_FLOAT = 3e38
"""Numbers that float32 can hold are below it."""


@final
@dataclass(frozen=True)
class Range:
    """What a number may be.

    Args:
        words: behind the setting's name.
        test: of a value, or of one for each replica.
    """

    words: str
    test: Callable[[Any], Any]

    def check(self, name: str, value: object) -> None:
        """Raise unless a value, or every replica's, is in the range."""
        if isinstance(value, bool) or not isinstance(value, Real | torch.Tensor | NoneType | tuple):
            raise TypeError(f"Expected {name} to be a number {self.words}, got {value!r}.")
        require(abs(value) < LARGEST if isinstance(value, int) else True, f"Expected {name} below 2^63, got {value}.")
        huge = isinstance(value, float) and LARGEST_FLOAT < abs(value) < inf
        require(not huge, f"Expected {name} below {LARGEST_FLOAT:.0e}, got {value}.")
        try:
            inside = bool(torch.as_tensor(self.test(value)).all())
        except TypeError:
            raise TypeError(f"Expected {name} to be a number {self.words}, got {value!r}.") from None
        require(inside, f"Expected {name} {self.words}, got {value}.")


def require(holds: bool, message: str) -> None:
    """Raise `ValueError(message)` unless something holds."""
    if not holds:
        raise ValueError(message)


AT_LEAST_0 = Range("of at least 0 and finite", lambda x: (x >= 0) & (x < inf))
ABOVE_0 = Range("above 0 and finite", lambda x: (x > 0) & (x < inf))
SHARE = Range("in [0, 1]", lambda x: (x >= 0) & (x <= 1))
SHARE_ABOVE_0 = Range("in (0, 1]", lambda x: (x > 0) & (x <= 1))
SHARE_BELOW_1 = Range("in [0, 1)", lambda x: (x >= 0) & (x < 1))
COUNT = Range("of at least 1", lambda x: isinstance(x, int) and x >= 1)
COUNT_OR_ALL = Range("of at least 1, or None for all", lambda x: x is None or (isinstance(x, int) and x >= 1))
ABOVE_0_OR_NONE = Range("above 0 and finite, or None", lambda x: True if x is None else (x > 0) & (x < inf))
AT_LEAST_0_OR_NONE = Range("of at least 0 and finite, or None", lambda x: True if x is None else (x >= 0) & (x < inf))


@dataclass_transform(kw_only_default=True, frozen_default=True)
def settings(kind: type[T]) -> type[T]:
    """Make a class of settings: frozen, given by keyword; the order is that of the base classes, then its own.

    A setting is `name: Annotated[type, Range, "what it is."] = default`, the range only for numbers.
    """
    return dataclass(frozen=True, kw_only=True, eq=False)(kind)


@final
@dataclass(frozen=True)
class SettingInfo:
    """One setting as it was declared.

    Args:
        name: its name.
        type: its type.
        default: its default.
        allowed: the numbers it may be.
        means: what it is.
    """

    name: str
    type: Any
    default: Any
    allowed: Range | None
    means: str

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that it may be."""
        members = [self.type, *get_args(self.type)]
        return tuple(word for member in members if get_origin(member) is Literal for word in get_args(member))

    @property
    def per_replica(self) -> bool:
        """Whether runs side by side may have different values: numbers that do not decide a size."""
        return float in (self.type, *get_args(self.type)) and get_origin(self.type) is not tuple

    def check(self, value: object) -> None:
        """Raise for a value that it may not have."""
        if self.choices:
            known = [*self.choices, *([None] if NoneType in get_args(self.type) else [])]
            words = ", ".join(map(repr, known))
            inside = (value is None or isinstance(value, str)) and value in known
            require(inside, f"Expected {self.name} to be one of {words}, got {value!r}.")
        elif self.allowed is not None:
            self.allowed.check(self.name, value)


@cache
def settings_of(kind: Hashable) -> Mapping[str, SettingInfo]:
    """The settings of a class, by name."""
    assert isinstance(kind, type)
    hints = get_type_hints(kind, include_extras=True)
    found = {}
    for own in fields(kind):
        bare, *extras = get_args(hints[own.name])
        ranges = [extra for extra in extras if isinstance(extra, Range)]
        found[own.name] = SettingInfo(own.name, bare, own.default, ranges[0] if ranges else None, extras[-1])
    return found


def check_settings(owner: object) -> None:
    """Raise for the first setting that is outside its range."""
    kind: Any = type(owner)
    for name, info in settings_of(kind).items():
        info.check(getattr(owner, name))
