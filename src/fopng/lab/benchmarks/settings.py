"""Settings of a benchmark as frozen dataclass fields, and how words from a command line or a file become them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Settings = TypeVar("Settings", bound=DataclassInstance)


def parsed(parse: Callable[[str], Any], explanation: str) -> dict[str, Any]:
    """The metadata of a dataclass field that `configure` can set from a word."""
    return {"parse": parse, "help": explanation}


def settable(settings: DataclassInstance) -> dict[str, Field[Any]]:
    """The fields that `configure` can set, by name."""
    return {each.name: each for each in fields(settings) if "parse" in each.metadata}


def configure(settings: Settings, words: Mapping[str, str]) -> Settings:
    """The same settings with some replaced: `configure(permuted, {"tasks": "20"})`."""
    known = settable(settings)
    values: dict[str, Any] = {}
    for name, word in words.items():
        if name not in known:
            raise ValueError(f"Expected a setting out of {', '.join(known) or 'none'}, got {name!r}.")
        try:
            values[name] = known[name].metadata["parse"](word)
        except ValueError as error:
            raise ValueError(f"Expected {known[name].metadata['help']} for {name}, got {word!r}.") from error
    return replace(settings, **values)


def whole_numbers(word: str) -> tuple[int, ...]:
    """Numbers parted by commas.

    >>> whole_numbers("3,1,2")
    (3, 1, 2)
    """
    return tuple(int(part) for part in word.split(",") if part.strip())


def numbers(word: str) -> tuple[float, ...]:
    """Numbers parted by commas.

    >>> numbers("0,22.5")
    (0.0, 22.5)
    """
    return tuple(float(part) for part in word.split(",") if part.strip())


def yes_or_no(word: str) -> bool:
    """A truth value from `yes`, `no`, `true` or `false`."""
    known = {"yes": True, "true": True, "no": False, "false": False}
    if word.lower() not in known:
        raise ValueError(word)
    return known[word.lower()]
