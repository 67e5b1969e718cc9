"""Whether a value is what an annotation says: for what comes out of files."""

import types
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from torch import Size


def check_fields(made: Any) -> None:
    """Raise `ValueError` for the first field of a dataclass that holds something else than it declares."""
    for name, hint in _hints(cast(Hashable, type(made))).items():
        if not fits(getattr(made, name), hint):
            raise ValueError(
                f"Expected {type(made).__name__}.{name} to be {hint}, got {type(getattr(made, name)).__name__}."
            )


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type, all the way down.

    >>> fits((1, 2), tuple[int, ...]), fits((1, "x"), tuple[int, ...]), fits(None, int | None)
    (True, False, True)
    """
    kind, inner = get_origin(hint), get_args(hint)
    if hint is Any or isinstance(hint, TypeVar):
        return True
    if hint is None or hint is types.NoneType:
        return value is None
    if kind in (Union, types.UnionType):
        return any(fits(value, each) for each in inner)
    if kind is Literal:
        return value in inner
    if kind is None:
        return _is(value, hint)
    return isinstance(value, kind) and all(fits(member, each) for member, each in _members(value, inner))


def _is(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return kind in (bool, object)
    # a size is saved as the tuple that it is
    wider: Mapping[type, Any] = {float: (int, float), Size: tuple}
    return isinstance(value, wider.get(kind, kind))


def _members(value: Any, inner: tuple[Any, ...]) -> list[tuple[Any, Any]]:
    """Each member of a container with what it should be; one with too many or too few holds something that fits nothing."""
    if isinstance(value, tuple) and not (len(inner) == 2 and inner[1] is Ellipsis):
        return list(zip(value, inner, strict=True)) if len(value) == len(inner) else [(value, None)]
    if isinstance(value, Mapping):
        return [(own, each) for pair in value.items() for own, each in zip(pair, inner, strict=True)]
    return [(member, inner[0]) for member in value] if isinstance(value, Sequence) and inner else []


@cache
def _hints(kind: Hashable) -> Mapping[str, Any]:
    assert isinstance(kind, type)
    known = get_type_hints(kind)
    return {field.name: known[field.name] for field in fields(kind) if field.init}
