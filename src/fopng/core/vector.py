"""Tensors by the names of parameters, calculated with as one vector: what a step, a Fisher's diagonal, a penalty are made of."""

from collections.abc import Callable, Collection, Mapping
from functools import reduce
from operator import attrgetter
from typing import Any, final

import torch
from torch import Tensor

_ZERO: Any = 0.0


@final
class Vector:
    """A vector `[*lead, p]` in parts, `[*lead, *shape]` for each parameter; one that is absent is zero.

    Args:
        parts: the tensors by the names of their parameters.
        lead: how many leading axes number replicas.

    >>> v = Vector({"weight": torch.ones(2, 3), "bias": torch.ones(2)})
    >>> (v + 2 * v.only(["bias"])).parts["bias"], float(v.dot(v))
    (tensor([3., 3.]), 8.0)
    """

    __slots__ = ("lead", "parts")

    def __init__(self, parts: dict[str, Tensor], lead: int = 0) -> None:
        self.parts, self.lead = parts, lead

    def __repr__(self) -> str:
        return f"Vector({ {name: tuple(part.shape) for name, part in self.parts.items()} }, lead={self.lead})"

    # What it consists of

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters that it has a part of."""
        return tuple(self.parts)

    @property
    def like(self) -> Tensor:
        """One of its parts, for device and precision; there must be one."""
        return next(iter(self.parts.values()))

    @property
    def version(self) -> int:
        """Changes when a part is written to in place."""
        return sum(map(attrgetter("_version"), self.parts.values()))

    @property
    def replicas(self) -> torch.Size:
        """The sizes of the replica axes."""
        return self.like.shape[: self.lead]

    def __contains__(self, name: object) -> bool:
        return name in self.parts

    def __getitem__(self, name: str) -> Tensor:
        return self.parts[name]

    def only(self, names: Collection[str]) -> "Vector":
        """The parts of these parameters alone."""
        if all(map(names.__contains__, self.parts)):
            return self
        return Vector({name: part for name, part in self.parts.items() if name in names}, self.lead)

    def without(self, names: Collection[str]) -> "Vector":
        """The parts of all other parameters."""
        return Vector({name: part for name, part in self.parts.items() if name not in names}, self.lead)

    def filled(self, shapes: Mapping[str, torch.Size]) -> "Vector":
        """The same with a part for each of these parameters, in their order; it must not be empty."""
        if [*self.parts] == [*shapes]:
            return self
        like, lead = self.like, self.replicas
        return Vector(
            {n: self.parts[n] if n in self.parts else like.new_zeros((*lead, *shape)) for n, shape in shapes.items()},
            self.lead,
        )

    def extended(self, other: "Vector") -> "Vector":
        """The same with zeros for the parameters that only another vector has."""
        missing = {name: torch.zeros_like(part) for name, part in other.parts.items() if name not in self.parts}
        return Vector({**self.parts, **missing}, self.lead) if missing else self

    def updated(self, other: "Vector") -> "Vector":
        """The other vector's parts, and of its own those that the other lacks."""
        return other if self.parts.keys() <= other.parts.keys() else Vector({**self.parts, **other.parts}, self.lead)

    def flat(self) -> Tensor:
        """All parts in one tensor `[*lead, p]`, in their order; for small models and tests."""
        return torch.cat([part.reshape(*part.shape[: self.lead], -1) for part in self.parts.values()], -1)

    # Arithmetic

    def __add__(self, other: "Vector") -> "Vector":
        if self.parts.keys() == other.parts.keys():
            return self._each(torch._foreach_add, other)
        shared = {name: part + other.parts[name] for name, part in self.parts.items() if name in other.parts}
        return Vector({**self.parts, **other.parts, **shared}, self.lead)

    def __sub__(self, other: "Vector") -> "Vector":
        return self._each(torch._foreach_sub, other) if self.parts.keys() == other.parts.keys() else self + -other

    def __neg__(self) -> "Vector":
        return self.map(torch.neg)

    def __mul__(self, factor: "float | Tensor | Vector") -> "Vector":
        if isinstance(factor, Tensor) and factor.dim():
            return self.map(lambda part: part * broadcast(factor, part))
        own: Vector = self
        factors: Any = factor
        if isinstance(factor, Vector):
            own = self if all(map(factor.parts.__contains__, self.parts)) else self.only(factor.parts)
            factors = list(map(factor.parts.__getitem__, own.parts))
        found = torch._foreach_mul(list(own.parts.values()), factors) if own.parts else ()
        return Vector(dict(zip(own.parts, found, strict=True)), self.lead)

    __rmul__ = __mul__

    def __truediv__(self, divisor: "float | Tensor | Vector") -> "Vector":
        if isinstance(divisor, Vector):
            return self._each(torch._foreach_div, divisor)
        return self.map(lambda part: part / broadcast(divisor, part))

    def _each(self, function: Callable[..., Any], other: "Vector") -> "Vector":
        """Work on each part and the part of that name of another vector, in one call for all."""
        others = list(map(other.parts.__getitem__, self.parts))
        found = function(list(self.parts.values()), others) if others else ()
        return Vector(dict(zip(self.parts, found, strict=True)), self.lead)

    def shifted(self, number: float | Tensor) -> "Vector":
        """Add a number, or one for each replica `[*lead]`, to every entry of its parts."""
        if not isinstance(number, Tensor) and self.parts:
            return Vector(
                dict(zip(self.parts, torch._foreach_add(list(self.parts.values()), number), strict=True)), self.lead
            )
        return self.map(lambda part: part + broadcast(number, part))

    def addcmul(self, left: "Vector", right: "Vector", scale: float | Tensor = 1.0) -> "Vector":
        """`self + scale left right`, entry by entry."""
        parts = self.parts
        if isinstance(scale, Tensor) or not parts.keys() == left.parts.keys() <= right.parts.keys() or not parts:
            return self + left * right * scale
        lefts, rights = list(map(left.parts.__getitem__, parts)), list(map(right.parts.__getitem__, parts))
        found = torch._foreach_addcmul(list(parts.values()), lefts, rights, value=scale)
        return Vector(dict(zip(parts, found, strict=True)), self.lead)

    def dot(self, other: "Vector") -> Tensor:
        """The inner product, `[*lead]`; they must have a parameter in common."""
        parts = self.parts
        if not all(map(other.parts.__contains__, parts)):
            parts = self.only(other.parts).parts
        others = map(other.parts.__getitem__, parts)
        if self.lead == 0:
            return reduce(torch.add, map(torch.dot, map(torch.ravel, parts.values()), map(torch.ravel, others)))
        mine, its = ([part.reshape(*part.shape[: self.lead], -1) for part in side] for side in (parts.values(), others))
        found: Tensor = reduce(torch.add, map(torch.linalg.vecdot, mine, its))
        return found

    def norm(self) -> Tensor:
        """The Euclidean length, `[*lead]`."""
        return self.dot(self).sqrt()

    def lerp(self, other: "Vector", weight: float | Tensor) -> "Vector":
        """`(1 - weight) self + weight other`."""
        if isinstance(weight, Tensor) or self.parts.keys() != other.parts.keys():
            return self * (1 - weight) + other * weight
        return self._each(lambda mine, others: torch._foreach_lerp(mine, others, weight), other)

    # Entry by entry

    def map(self, function: Callable[[Tensor], Tensor]) -> "Vector":
        """Change each part."""
        return Vector({name: function(part) for name, part in self.parts.items()}, self.lead)

    def where(self, holds: Tensor, other: "Vector | None" = None) -> "Vector":
        """Keep the replicas for which something holds, `[*lead]`; the others get another vector's entries, or zero."""
        others = {} if other is None else other.parts
        return Vector(
            {
                name: torch.where(
                    holds.reshape((*holds.shape, *[1] * (part.dim() - holds.dim()))), part, others.get(name, _ZERO)
                )
                for name, part in self.parts.items()
            },
            self.lead,
        )

    def zeros(self) -> "Vector":
        """Zeros of the same shapes."""
        return self.map(torch.zeros_like)

    def clone(self) -> "Vector":
        """A copy that shares no memory."""
        return self.map(torch.clone)

    def finite(self) -> Tensor:
        """Whether all entries of a replica are finite, `[*lead]`."""
        rows = [part.reshape(*part.shape[: self.lead], -1) for part in self.parts.values()]
        return torch.stack([row.isfinite().all(-1) for row in rows]).all(0)

    def name_nonfinite(self) -> list[str]:
        """Name the parameters whose part holds a NaN or an infinity."""
        return [name for name, part in self.parts.items() if not bool(part.isfinite().all())]


def broadcast(setting: float | Tensor, like: Tensor) -> float | Tensor:
    """Give a setting the shape and the precision to multiply a tensor of replicas.

    Args:
        setting: a number, or one for each replica, `[*lead]`.
        like: the tensor, `[*lead, ...]`.

    >>> import torch
    >>> broadcast(torch.ones(3), torch.zeros(3, 5, 2)).shape
    torch.Size([3, 1, 1])
    """
    if not isinstance(setting, Tensor):
        return setting
    return setting.to(like.dtype).reshape((*setting.shape, *[1] * (like.dim() - setting.dim())))
