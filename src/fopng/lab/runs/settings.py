"""A method's settings as people write them (`--set damping=1e-2`, a TOML file), checked before any work starts."""

import difflib
import inspect
import math
import tomllib
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Union, final, get_args, get_origin, get_type_hints

SettingValue = None | bool | int | float | str

NOTHING = ("none", "full", "all")
"""The words for None, where a setting may be None: `full` and `all`, as pages write it, read better for a number of samples."""

TRUTHS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


@final
@dataclass(frozen=True)
class Setting:
    """One setting: its name and what it may be."""

    name: str
    kinds: tuple[type, ...]
    """Among bool, int, float and str, the narrowest first."""
    choices: tuple[str, ...]
    """The texts it may be, where they are few."""
    optional: bool
    """Whether it may be None."""
    required: bool
    """Whether it has no default."""

    def value(self, written: object) -> SettingValue:
        """What was written (a text from the command line, a value from a file), in this setting's type."""
        if self.optional and (written is None or (isinstance(written, str) and written.lower() in NOTHING)):
            return None
        if isinstance(written, str) and written in self.choices:
            return written
        for kind in self.kinds:
            value = _READERS[kind](written)
            if value is not None:
                return value
        raise ValueError(f"Expected {self.wording()} for {self.name}, got {_shown(written)}. {self._advice(written)}")

    def wording(self) -> str:
        """What it may be, in words."""
        words = [*map(repr, self.choices), *(_WORDS[kind] for kind in self.kinds), *(["none"] if self.optional else [])]
        return " or ".join(words)

    def _advice(self, written: object) -> str:
        close = difflib.get_close_matches(str(written), self.choices, n=1)
        return f"Did you mean {close[0]!r}?" if close else f"Write {self.name}=VALUE with such a value."


def settings_of(target: Callable[..., object]) -> dict[str, Setting]:
    """The settings of a dataclass, a class or a function: its parameters that can be written as text.

    >>> def method(model: object, lr: float, *, samples: int | None = None): ...
    >>> [setting.name for setting in settings_of(method).values()]
    ['lr', 'samples']
    """
    hints = get_type_hints(target.__init__ if inspect.isclass(target) else target)
    found = {}
    for name, parameter in inspect.signature(target).parameters.items():
        members = _members(hints.get(name))
        if members and all(_is_writable(member) for member in members):
            found[name] = _setting(name, members, parameter.default is parameter.empty)
    return found


def parse_assignments(
    assignments: Iterable[str], settings: Mapping[str, Setting], owner: str
) -> dict[str, SettingValue]:
    """The values of `name=value` texts.

    Args:
        assignments: what the user wrote after each `--set`.
        settings: what there is to set, from `settings_of`.
        owner: whose settings they are, for messages.
    """
    return check_settings(parse_pairs(assignments), settings, owner)


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


def check_settings(
    written: Mapping[str, object], settings: Mapping[str, Setting], owner: str
) -> dict[str, SettingValue]:
    """The values in their types; an unknown name is refused with the nearest that there is."""
    for name in written:
        if name not in settings:
            raise ValueError(unknown(f"a setting of {owner}", name, settings))
    return {name: settings[name].value(value) for name, value in written.items()}


@final
@dataclass(frozen=True)
class SettingsFile:
    """What a TOML file sets: its top level for every method, a table for the one that it is named after."""

    shared: Mapping[str, object]
    tables: Mapping[str, Mapping[str, object]]


def read_settings_file(path: Path, tables: Collection[str]) -> SettingsFile:
    """The settings in a TOML file.

    Args:
        path: the file.
        tables: the names that its tables may have.
    """
    try:
        members = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(
            f"Expected a TOML file of settings, got {path}: {error.strerror}. Name one that exists."
        ) from error
    except ValueError as error:
        raise ValueError(
            f"Expected TOML in {path}, got: {error}. Write a line a setting, such as lr = 1e-3."
        ) from error
    found = {name: member for name, member in members.items() if isinstance(member, dict)}
    for name in found:
        if name not in tables:
            raise ValueError(f"In {path}: " + unknown("a table named after a method", name, tables))
    return SettingsFile({name: member for name, member in members.items() if name not in found}, found)


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


def _setting(name: str, members: Sequence[object], required: bool) -> Setting:
    choices = [choice for member in members if get_origin(member) is Literal for choice in get_args(member)]
    kinds = tuple(kind for kind in _READERS if kind in members)
    return Setting(name, kinds, tuple(choices), type(None) in members, required)


def _members(hint: object) -> Sequence[object]:
    if hint is None:
        return ()
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _is_writable(member: object) -> bool:
    if get_origin(member) is Literal:
        return all(isinstance(choice, str) for choice in get_args(member))
    return member in _READERS or member is type(None)


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


_READERS: Mapping[type, Callable[[object], SettingValue]] = {
    bool: _read_bool,
    int: _read_int,
    float: _read_float,
    str: _read_str,
}

_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def _shown(written: object) -> str:
    text = repr(written)
    return text if len(text) <= 80 else f"{text[:77]}..."
