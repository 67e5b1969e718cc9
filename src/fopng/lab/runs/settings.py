"""Settings as people write them (`--set damping=1e-2`, a TOML file), read by their declarations before any work starts."""

import difflib
import math
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Literal, Union, get_args, get_origin

from fopng.lab.benchmarks import BENCHMARKS
from fopng.lab.storage import parsing
from fopng.optim.registry import METHODS, MethodEntry
from fopng.optim.settings import ABOVE_0, AT_LEAST_0, COUNT, SettingInfo, settings_of

SettingValue = None | bool | int | float | str | tuple[float, ...]

Written = Mapping[str, object]
"""Settings by name, each a text from the command line or a value from a file."""

NOTHING = ("none", "full", "all")
"""The words for None, where a setting may be None: `full` and `all`, as pages write it, read better for a number of samples."""

TRUTHS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}

TRAINING = {
    "epochs": SettingInfo("epochs", int, None, COUNT, "epochs a task."),
    "batch_size": SettingInfo("batch_size", int, None, COUNT, "samples a step."),
    "first_task_lr": SettingInfo("first_task_lr", float, None, ABOVE_0, "SGD's learning rate on the first task."),
}
"""What can be set for a method as if it were its own: how it is trained."""


def find_method(name: str) -> MethodEntry:
    """The method of this name; ValueError suggests the nearest."""
    if name in BENCHMARKS:
        raise ValueError(
            f"Expected a method, got {name!r}, which is a benchmark. Name the benchmark first, then methods."
        )
    if name not in METHODS:
        raise ValueError(unknown("a method", name, METHODS))
    return METHODS[name]


def method_settings(entry: MethodEntry) -> dict[str, SettingInfo]:
    """The settings of a method that can be written as text, its learning rate first."""
    rate = SettingInfo("lr", float, entry.method.default_lr, AT_LEAST_0, entry.method.lr_means)
    own = settings_of(entry.method)
    return {"lr": rate, **{name: info for name, info in own.items() if info.choices or _kinds(info)}}


def defaults_of(entry: MethodEntry) -> dict[str, SettingValue]:
    """The settings of a method that have a default; for most the learning rate has none."""
    found = {name: info.default for name, info in method_settings(entry).items()}
    return found if found["lr"] is not None else {name: value for name, value in found.items() if name != "lr"}


def read_settings(written: Written, known: Mapping[str, SettingInfo], owner: str) -> dict[str, SettingValue]:
    """The values in their types and ranges; an unknown name is refused with the nearest that there is.

    Args:
        written: what people wrote.
        known: the settings there are.
        owner: whose settings they are, for messages.
    """
    for name in written:
        if name not in known:
            raise ValueError(unknown(f"a setting of {owner}", name, known))
    return {name: read_value(known[name], value) for name, value in written.items()}


def read_value(info: SettingInfo, written: object) -> SettingValue:
    """What was written, in a setting's type and range.

    >>> read_value(TRAINING["epochs"], "1e1")
    10
    """
    value = _typed(info, written)
    info.check(value)
    return value


def wording(info: SettingInfo) -> str:
    """What a setting may be, in words.

    >>> wording(TRAINING["first_task_lr"])
    'a number'
    """
    words = [*map(repr, info.choices), *(_KINDS[kind][1] for kind in _kinds(info))]
    return " or ".join([*words, "none"] if types.NoneType in _members(info) else words)


def parse_pairs(assignments: Iterable[str]) -> dict[str, str]:
    """The names and values of `name=value` texts, each name once.

    >>> parse_pairs(["lr=1e-3", "fopng.damping = 0.1"])
    {'lr': '1e-3', 'fopng.damping': '0.1'}
    """
    written: dict[str, str] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ValueError(f"Expected name=value, got {_shown(assignment)}. Write, for example, lr=1e-3.")
        if name in written:
            raise ValueError(f"Expected {name} once, got it twice. Keep one of them.")
        written[name] = value.strip()
    return written


def read_toml(path: Path, what: str) -> dict[str, object]:
    """The members of a TOML file; ValueError names a file that cannot be read.

    Args:
        path: the file.
        what: what it should hold, for messages.
    """
    try:
        return parsing.read_toml(path)
    except OSError as error:
        raise ValueError(
            f"Expected a TOML file of {what}, got {path}: {error.strerror}. Name one that exists."
        ) from error
    except ValueError as error:
        raise ValueError(
            f"Expected TOML in {path}, got: {error}. Write a line for each setting, such as lr = 1e-3."
        ) from error


def read_settings_file(path: Path, tables: Collection[str]) -> list[tuple[str, str, object]]:
    """The settings in a TOML file: the table it stands in ("" for the top level, which is for every method), name and value.

    Args:
        path: the file.
        tables: the names that its tables may have.
    """
    found: list[tuple[str, str, object]] = []
    for name, member in read_toml(path, "settings").items():
        if not isinstance(member, dict):
            found.append(("", name, member))
        elif name in tables:
            found += [(name, inner, value) for inner, value in member.items()]
        else:
            raise ValueError(f"In {path}: " + unknown("a table named after a method", name, tables))
    return found


def unknown(expected: str, got: str, known: Iterable[str]) -> str:
    """The sentence for a name that is not known, with the nearest one that is.

    >>> unknown("a method", "fopgn", ["sgd", "fopng"])
    "Expected a method, got 'fopgn'. Did you mean 'fopng'? There are: fopng, sgd."
    >>> unknown("a setting", "learning_rate", ["damping", "lr"])
    "Expected a setting, got 'learning_rate'. Did you mean 'lr'? There are: damping, lr."
    """
    names = sorted(known)
    initials = "".join(word[0] for word in got.split("_") if word)
    close = [name for name in names if name == initials] or difflib.get_close_matches(got.lower(), names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"Expected {expected}, got {_shown(got)}.{hint} There are: {', '.join(names) or 'none'}."


def _typed(info: SettingInfo, written: object) -> SettingValue:
    """What was written, in a setting's type."""
    nothing = written is None or (isinstance(written, str) and written.lower() in NOTHING)
    if nothing and types.NoneType in _members(info):
        return None
    if isinstance(written, str) and written in info.choices:
        return written
    for kind in _kinds(info):
        value = _KINDS[kind][0](written)
        if value is not None:
            return value
    close = difflib.get_close_matches(str(written), info.choices, n=1)
    advice = f"Did you mean {close[0]!r}?" if close else f"Write {info.name}=VALUE with such a value."
    raise ValueError(f"Expected {wording(info)} for {info.name}, got {_shown(written)}. {advice}")


def _members(info: SettingInfo) -> tuple[object, ...]:
    return get_args(info.type) if get_origin(info.type) in (Union, types.UnionType) else (info.type,)


def _kinds(info: SettingInfo) -> list[object]:
    """The types beside words and None that it may have, the narrowest first; none where a member cannot be written as text."""
    members = [each for each in _members(info) if each is not types.NoneType and get_origin(each) is not Literal]
    return [kind for kind in _KINDS if kind in members] if all(each in _KINDS for each in members) else []


def _read_bool(written: object) -> bool | None:
    return TRUTHS.get(written.lower()) if isinstance(written, str) else written if isinstance(written, bool) else None


def _read_int(written: object) -> int | None:
    number = _read_float(written)
    if number is None or not number.is_integer():
        return None
    try:
        return int(written)  # type: ignore[call-overload, no-any-return]  # exact beyond what a float holds
    except ValueError:
        return int(number)


def _read_float(written: object) -> float | None:
    if isinstance(written, bool) or not isinstance(written, int | float | str):
        return None
    try:
        number = float(written)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _read_str(written: object) -> str | None:
    return written if isinstance(written, str) else None


def _row_of(read: Callable[[object], float | None]) -> Callable[[object], tuple[float, ...] | None]:
    """Read several values: a list, or a text parted by commas."""

    def read_row(written: object) -> tuple[float, ...] | None:
        parts = [part for part in written.split(",") if part.strip()] if isinstance(written, str) else written
        if not isinstance(parts, list | tuple):
            return None
        found = tuple(value for part in parts if (value := read(part)) is not None)
        return found if len(found) == len(parts) else None

    return read_row


_KINDS: Mapping[object, tuple[Callable[[object], SettingValue], str]] = {
    bool: (_read_bool, "true or false"),
    int: (_read_int, "a whole number"),
    float: (_read_float, "a number"),
    str: (_read_str, "a text"),
    tuple[int, ...]: (_row_of(_read_int), "whole numbers parted by commas"),
    tuple[float, ...]: (_row_of(_read_float), "numbers parted by commas"),
}
"""How each type is read, which gives None for what it cannot be, and what it is called."""


def _shown(written: object) -> str:
    text = repr(written)
    return text if len(text) <= 80 else f"{text[:77]}..."
