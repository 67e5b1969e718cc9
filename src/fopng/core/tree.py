"""State as a tree of tensors: changed, counted, saved and loaded as a whole, without code of its owners' own.

A tree is a tensor, a `Vector`, a list, a tuple, a dictionary, or a dataclass marked with `@node`. Numbers, texts and None are
leaves that stay as they are.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from operator import is_
from typing import Any, TypeVar

from torch import Tensor

from fopng.core.typed import check_fields, fits
from fopng.core.vector import Vector

T = TypeVar("T")

_NODES: dict[str, type] = {}


def node(kind: type[T]) -> type[T]:
    """Mark a dataclass as part of a state: its fields are saved under their names, it under its own."""
    if _NODES.setdefault(kind.__name__, kind) is not kind and _NODES[kind.__name__].__module__ != kind.__module__:
        raise TypeError(f"Expected one class of the name {kind.__name__} in states, got two. Rename one.")
    _NODES[kind.__name__] = kind
    return kind


def map_tree(function: Callable[[Tensor], Tensor], tree: T) -> T:
    """Change every tensor of a tree; a part of which nothing changes stays the object that it is.

    >>> import torch
    >>> map_tree(lambda t: t + 1, {"a": torch.zeros(1), "b": "text"})
    {'a': tensor([1.]), 'b': 'text'}
    """
    return map_trees(lambda tensor, _: function(tensor), tree, None)


def map_trees(function: Callable[[Tensor, Tensor | None], Tensor], tree: T, other: Any) -> T:
    """Change every tensor of a tree, given the tensor in the same place of another tree; None where that has none."""
    return _mapped(function, tree, other)  # type: ignore[no-any-return]


def _mapped(function: Callable[[Tensor, Tensor | None], Tensor], tree: Any, other: Any) -> Any:
    if isinstance(tree, Tensor):
        return function(tree, other if isinstance(other, Tensor) else None)
    before = children(tree)
    if isinstance(tree, (list, tuple)):
        others = children(other) if len(children(other)) == len(before) else [None] * len(before)
    else:
        # by name: the other may have others
        others = [_held(other).get(key) for key in _held(tree)]
    beside = iter(others)
    made = map_children(lambda own: _mapped(function, own, next(beside)), tree)
    return tree if all(map(is_, children(made), before)) else made


def _is_node(tree: object) -> bool:
    return is_dataclass(tree) and type(tree).__name__ in _NODES


def _held(tree: Any) -> dict[Any, Any]:
    """What a dictionary, a vector or a node consists of; nothing for anything else."""
    if isinstance(tree, dict):
        return tree
    if isinstance(tree, Vector):
        return tree.parts
    return {own.name: getattr(tree, own.name) for own in fields(tree) if own.init} if _is_node(tree) else {}


def children(tree: Any) -> list[Any]:
    """The trees that a tree consists of; none for a leaf."""
    return list(tree) if isinstance(tree, (list, tuple)) else list(_held(tree).values())


def map_children(function: Callable[[Any], Any], tree: T) -> T:
    """A tree with each of the trees that it consists of changed; a leaf stays."""
    found: Any = tree
    if isinstance(tree, (list, tuple)):
        found = type(tree)(map(function, tree))
    elif held := _held(tree):
        made = {key: function(own) for key, own in held.items()}
        found = (
            made
            if isinstance(tree, dict)
            else Vector(made, tree.lead)
            if isinstance(tree, Vector)
            else type(tree)(**made)
        )
    return found  # type: ignore[no-any-return]


def tensors_in(tree: Any) -> Iterator[Tensor]:
    """Every tensor of a tree."""
    if isinstance(tree, Tensor):
        yield tree
    else:
        for own in children(tree):
            yield from tensors_in(own)


def bytes_of(tree: Any) -> int:
    """Bytes that the tensors of a tree hold."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_in(tree))


def to_plain(tree: Any) -> Any:
    """A tree as dictionaries, lists and tensors alone: what `torch.load(weights_only=True)` and safetensors know."""
    if isinstance(tree, Vector):
        return {"node": "Vector", "lead": tree.lead, "parts": dict(tree.parts)}
    if _is_node(tree):
        return {"node": type(tree).__name__, **{name: to_plain(own) for name, own in _held(tree).items()}}
    if isinstance(tree, tuple):
        return {"node": "tuple", "items": [to_plain(own) for own in tree]}
    if isinstance(tree, list):
        return [to_plain(own) for own in tree]
    if isinstance(tree, dict):
        return {"node": "dict", "items": [[to_plain(key), to_plain(own)] for key, own in tree.items()]}
    return tree


def from_plain(plain: Any) -> Any:
    """The tree that `to_plain` was given."""
    if isinstance(plain, list):
        return [from_plain(own) for own in plain]
    if not isinstance(plain, dict):
        return plain
    # what another version saved has no such key; name what it has
    kind = plain.get("node", next(iter(plain), None))
    if not isinstance(kind, str):
        raise ValueError(f"Expected a state, got a dictionary of {type(kind).__name__}.")
    if kind == "Vector":
        return _vector(dict(plain["parts"]), plain["lead"])
    if kind == "tuple":
        return tuple(from_plain(own) for own in plain["items"])
    if kind == "dict":
        return {from_plain(key): from_plain(own) for key, own in plain["items"]}
    if kind not in _NODES:
        raise ValueError(
            f"Expected a state of this version, got one with {kind!r} in it. Use the version that wrote it."
        )
    made = _NODES[kind](**{name: from_plain(own) for name, own in plain.items() if name != "node"})
    check_fields(made)
    return made


def _vector(parts: dict[str, Any], lead: Any) -> Vector:
    if not (fits(parts, dict[str, Tensor]) and fits(lead, int) and lead >= 0):
        raise ValueError("Expected a vector of tensors by the names of parameters, got something else.")
    return Vector(parts, lead)


def as_kind(tree: T, like: Tensor) -> T:
    """Bring the numbers of a tree to the device and precision of a tensor, counts and masks to its device alone."""

    def move(tensor: Tensor) -> Tensor:
        return tensor.to(like) if tensor.is_floating_point() else tensor.to(like.device)

    return map_tree(move, tree)
