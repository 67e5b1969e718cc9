"""What a setting may be, and the sentence for one that is not."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, final

import torch


def require(holds: bool, message: str) -> None:
    """Raise `ValueError(message)` unless something holds."""
    if not holds:
        raise ValueError(message)


def choose(name: str, value: object, choices: Sequence[object]) -> None:
    """Raise unless a setting is one of its choices."""
    require(value in choices, f"Expected {name} to be one of {', '.join(map(repr, choices))}, got {value!r}.")


@final
@dataclass(frozen=True)
class Range:
    """What settings may be.

    Args:
        words: behind the setting's name.
        test: of a value, or of one a replica.
    """

    words: str
    test: Callable[[Any], Any]

    def check(self, owner: object, *names: str) -> None:
        """Raise unless these attributes, or every replica's, are in the range."""
        for name in names:
            self.check_value(name, getattr(owner, name))

    def check_value(self, name: str, value: object) -> None:
        """Raise unless a value, or every replica's, is in the range."""
        try:
            inside = bool(torch.as_tensor(self.test(value)).all())
        except TypeError:
            raise TypeError(f"Expected {name} to be a number {self.words}, got {value!r}.") from None
        require(inside, f"Expected {name} {self.words}, got {value}.")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and value >= 1


AT_LEAST_0 = Range("of at least 0 and finite", lambda x: (x >= 0) & (x < inf))
ABOVE_0 = Range("above 0 and finite", lambda x: (x > 0) & (x < inf))
SHARE = Range("in [0, 1]", lambda x: (x >= 0) & (x <= 1))
SOME_SHARE = Range("in (0, 1]", lambda x: (x > 0) & (x <= 1))
NOT_THE_WHOLE = Range("in [0, 1)", lambda x: (x >= 0) & (x < 1))
COUNT = Range("of at least 1", _is_count)
COUNT_OR_ALL = Range("of at least 1, or None for all", lambda x: x is None or _is_count(x))
