"""The configuration of a run: everything that can change a number, and nothing else.

No device, threads, paths or engine: a result made in one way satisfies a request made in another.
"""

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

Value = None | bool | int | float | str | Sequence["Value"] | Mapping[str, "Value"]

EDITION = 1
"""Raised whenever a change to the code moves numbers (see the changelog): older results are not taken for new ones."""


@final
class FrozenMapping(Mapping[str, Value]):
    """A mapping that cannot be changed, hashes, and travels between processes."""

    def __init__(self, items: Mapping[str, Value]) -> None:
        self._items = {str(name): _frozen(value) for name, value in items.items()}

    def __getitem__(self, name: str) -> Value:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)


LATER: Mapping[str, Value] = {"tolerance": None, "rehearse": 0.0}
"""Settings that methods did not have when results were first kept, with the values that leave everything as it was then."""


@final
@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One run, fully said. Two equal configurations have one key, in every process and on every machine."""

    benchmark: str
    dataset: str
    scenario: str
    benchmark_parameters: Mapping[str, Value]
    """Whatever else shapes the tasks: how many, which angles, how much of the dataset."""
    model: str
    method: str
    settings: Mapping[str, Value]
    """Every setting of the method, the defaults too: a default that changes later must change the key."""
    protocol: str
    first_task_lr: float | None
    """The learning rate of SGD on the first task; None where the method's own is used."""
    seed: int
    epochs: int
    batch_size: int
    validation: bool
    """Whether part of the training set is held out and measured, as in a sweep."""
    dtype: str
    edition: int = EDITION

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, _checked(field.name, field.type, getattr(self, field.name)))
        self.canonical()

    @classmethod
    def from_dict(cls, members: Mapping[str, object]) -> "RunConfig":
        """The configuration that `as_dict` described; every member must be there, and no other."""
        names = {field.name for field in dataclasses.fields(cls)}
        if set(members) != names:
            raise ValueError(
                f"Expected the members {sorted(names)} in a configuration, got {sorted(members)}. "
                "It was written by another version: run again with this one."
            )
        return cls(**{name: members[name] for name in names})  # type: ignore[arg-type]  # checked in __post_init__

    def as_dict(self) -> dict[str, object]:
        """Plain dictionaries and lists, for JSON."""
        return {field.name: plain(getattr(self, field.name)) for field in dataclasses.fields(self)}

    def canonical(self) -> str:
        """The one text of this configuration: sorted names, no spaces, shortest exact numbers; without settings that came later."""
        said = {name: own for name, own in self.settings.items() if LATER.get(name, object()) != own}
        return canonical_json({**self.as_dict(), "settings": plain(said)})

    def tunable(self) -> dict[str, Value]:
        """What a sweep may vary, by the names that people write: the method's settings, the benchmark's, and how it is trained."""
        training = {"epochs": self.epochs, "batch_size": self.batch_size, "first_task_lr": self.first_task_lr}
        return {**training, **self.benchmark_parameters, **self.settings}

    @cached_property
    def key(self) -> str:
        """Sixteen hexadecimal digits that name the run."""
        return hashlib.sha256(self.canonical().encode("ascii")).hexdigest()[:16]


def canonical_json(value: object) -> str:
    """The same text for equal values: `1` and `1.0`, `1e-3` and `0.001`, whatever the order of the names.

    >>> canonical_json({"b": 1e-3, "a": 2.0})
    '{"a":2,"b":0.001}'
    """
    return json.dumps(_canonical(value, ""), sort_keys=True, separators=(",", ":"), allow_nan=False)


def plain(value: object) -> object:
    """Mappings as dictionaries and sequences as lists, all the way down."""
    if isinstance(value, Mapping):
        return {str(name): plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [plain(member) for member in value]
    return value


def differing(choices: Sequence[Mapping[str, Value]]) -> list[str]:
    """The names, in alphabetical order, whose values are not the same in all of these.

    >>> differing([{"lr": 1, "momentum": 0.5}, {"lr": 1.0}])
    ['momentum']
    """
    names = sorted({name for choice in choices for name in choice})
    return [name for name in names if len({canonical_json(choice.get(name)) for choice in choices}) > 1]


def plain_text(value: str, name: str) -> str:
    """A text from a file, refused if it holds characters that steer a terminal."""
    if CONTROL.search(value):
        raise ValueError(f"Expected {name or 'a name'} without control characters, got {value[:80]!r}. Use letters.")
    return value


def without_control(text: str) -> str:
    """A text for a terminal: control characters as they are written in Python."""
    return CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


def _canonical(value: object, name: str) -> object:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"Expected a finite number for {name}, got {value}. Give a number that can be compared.")
        # An exact whole number is one value whether it was written 1 or 1.0.
        return int(value) if value.is_integer() else float(value)
    if isinstance(value, Mapping):
        return {str(key): _canonical(member, f"{name}.{key}".lstrip(".")) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(member, f"{name}[{index}]") for index, member in enumerate(value)]
    raise TypeError(
        f"Expected None, a bool, a number, a text, a list or a mapping for {name}, got {type(value).__name__}. "
        "Convert it to one of these."
    )


def _frozen(value: Value) -> Value:
    if isinstance(value, Mapping):
        return FrozenMapping(value)
    if isinstance(value, list | tuple):
        return tuple(_frozen(member) for member in value)
    return value


def _checked(name: str, kind: object, value: object) -> object:
    """The value of a field, frozen, after its type was held to the annotation."""
    accepted = _ACCEPTED[kind]
    if (type(value) is bool and bool not in accepted) or not isinstance(value, accepted):
        raise TypeError(f"Expected {_wording(accepted)} for {name}, got {value!r}. Give one of that type.")
    if isinstance(value, Mapping):
        return FrozenMapping(value)
    if isinstance(value, str):
        return plain_text(value, name)
    return float(value) if float in accepted and isinstance(value, int) else value


_ACCEPTED: Mapping[object, tuple[type, ...]] = {
    str: (str,),
    int: (int,),
    bool: (bool,),
    float | None: (float, int, type(None)),
    Mapping[str, Value]: (Mapping,),
}


def _wording(accepted: tuple[type, ...]) -> str:
    return " or ".join("None" if kind is type(None) else kind.__name__ for kind in accepted)
