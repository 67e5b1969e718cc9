"""Directions that a projection removes, `B [p, m]`, as operators."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, final

import torch
from torch import Tensor

from fopng.core.vector import Vector
from fopng.gradients.layers import LayerGradients, Names


class Basis(ABC):
    """Directions `B [p, m]` that a projection removes."""

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of directions, m."""

    @abstractmethod
    def matvec(self, c: Tensor) -> Vector:
        """`B c`, of `c [*lead, m]`."""

    def subtract(self, c: Tensor, g: Vector) -> Vector:
        """`g - B c`, in the parameters of `g`."""
        return _minus(g, self.matvec(c))

    @abstractmethod
    def rmatvec(self, x: Vector) -> Tensor:
        """`B^T x`, `[*lead, m]`."""

    @abstractmethod
    def gram(self, weights: Vector | None) -> Tensor:
        """`B^T diag(weights) B`: `[*lead, m, m]` in float64; no weights, no metric. A weight that is absent is zero."""

    @abstractmethod
    def rows(self) -> Vector:
        """`B^T` written out: `[*lead, m, *shape]` for each parameter, the directions as one more replica axis."""

    def only(self, names: Collection[str]) -> "Basis":
        """The part of the directions that belongs to these parameters."""
        return RestrictedBasis(self, names)


Pieces: TypeAlias = list[tuple[slice, LayerGradients, tuple[Tensor, ...] | None]]
"""Of one layer: the directions that each piece belongs to, its gradients, a diagonal weight `[*lead, *shape]` a parameter."""


class StoredGradients(Basis):
    """Gradients of old tasks, layer by layer: what a Fisher must know of a memory of them.

    Attributes:
        shares: how many directions each task has; of a memory that was compressed, the first share is what all tasks before have.
        error: the share of the squared length of all directions ever stored that was lost in compression, `[*lead]`; None before.
    """

    shares: tuple[int, ...]
    error: Tensor | None

    @property
    @abstractmethod
    def layers(self) -> tuple[Names, ...]:
        """The layers that hold gradients, each by the names of its parameters."""

    @property
    @abstractmethod
    def weighted(self) -> bool:
        """Whether any gradients have a diagonal weight."""

    @property
    @abstractmethod
    def like(self) -> Tensor:
        """A tensor of the device and precision of those held; the memory must not be empty."""

    @abstractmethod
    def blocks(self) -> Iterator[tuple[Names, Pieces]]:
        """All that is held, layer by layer."""

    @abstractmethod
    def only(self, names: Collection[str]) -> "StoredGradients":
        """The gradients of these parameters alone, shared, not copied; no directions where nothing stored concerns them."""

    @abstractmethod
    def mapped(self, change: Callable[[Names, LayerGradients], LayerGradients]) -> "StoredGradients":
        """The same directions, each layer's changed: what a Fisher that is a block a layer makes of them."""


@dataclass(frozen=True, eq=False)
class _Wrapped(Basis):
    """A basis made from another one, with as many directions."""

    inner: Basis

    @cached_property
    def count(self) -> int:
        return self.inner.count


@final
@dataclass(frozen=True, eq=False)
class ScaledBasis(_Wrapped):
    """A basis with a diagonal in front, `diag(scale) G`: FOPNG's `F_old G`.

    Args:
        inner: `G`.
        scale: the diagonal.
    """

    scale: Vector

    def matvec(self, c: Tensor) -> Vector:
        return self.inner.matvec(c) * self.scale

    def subtract(self, c: Tensor, g: Vector) -> Vector:
        sums = self.inner.matvec(c)
        alike = sums.parts.keys() == g.parts.keys()
        return g.addcmul(sums, self.scale, -1.0) if alike else _minus(g, sums * self.scale)

    def rmatvec(self, x: Vector) -> Tensor:
        return self.inner.rmatvec(x * self.scale)

    def gram(self, weights: Vector | None) -> Tensor:
        squared = self.scale * self.scale
        return self.inner.gram(squared if weights is None else squared * weights)

    def rows(self) -> Vector:
        rows = self.inner.rows()
        return rows * self.scale.map(lambda part: part.unsqueeze(rows.lead - 1))

    def only(self, names: Collection[str]) -> Basis:
        return ScaledBasis(self.inner.only(names), self.scale)


@final
@dataclass(frozen=True, eq=False)
class TransformedBasis(_Wrapped):
    """A basis with a symmetric matrix in front, `F G`, that is known only by what it does to a vector.

    Args:
        inner: `G`.
        change: `F v` of a `v`.
    """

    change: Callable[[Vector], Vector]

    def matvec(self, c: Tensor) -> Vector:
        return self.change(self.inner.matvec(c))

    def rmatvec(self, x: Vector) -> Tensor:
        return self.inner.rmatvec(self.change(x))

    def gram(self, weights: Vector | None) -> Tensor:
        return gram_of_rows(self.rows(), weights)

    def rows(self) -> Vector:
        return each_row(self.change, self.inner.rows())


@final
@dataclass(frozen=True, eq=False)
class CombinedBasis(_Wrapped):
    """Combinations of directions, `G mix`: what an empirical Fisher, `G G^T / m`, makes of `G` without being formed.

    Args:
        inner: `G`.
        mix: `[*lead, m, m]`.
    """

    mix: Tensor

    def matvec(self, c: Tensor) -> Vector:
        return self.inner.matvec((self.mix.to(c.dtype) @ c.unsqueeze(-1)).squeeze(-1))

    def rmatvec(self, x: Vector) -> Tensor:
        products = self.inner.rmatvec(x)
        return (self.mix.mT.to(products.dtype) @ products.unsqueeze(-1)).squeeze(-1)

    def gram(self, weights: Vector | None) -> Tensor:
        return self.mix.mT @ self.inner.gram(weights) @ self.mix

    def rows(self) -> Vector:
        rows = self.inner.rows()
        axis = rows.lead - 1

        def combine(part: Tensor) -> Tensor:
            flat = part.reshape(*part.shape[: rows.lead], part.shape[rows.lead :].numel())
            return (self.mix.mT.to(part.dtype) @ flat).reshape(*part.shape[:axis], -1, *part.shape[rows.lead :])

        return rows.map(combine)


@final
@dataclass(frozen=True, eq=False)
class RestrictedBasis(_Wrapped):
    """The rows of a basis that belong to some of the parameters.

    Args:
        inner: the basis.
        names: the parameters.
    """

    names: Collection[str]

    def matvec(self, c: Tensor) -> Vector:
        return self.inner.matvec(c).only(self.names)

    def rmatvec(self, x: Vector) -> Tensor:
        return self.inner.rmatvec(x.only(self.names))

    def gram(self, weights: Vector | None) -> Tensor:
        return gram_of_rows(self.rows(), None) if weights is None else self.inner.gram(weights.only(self.names))

    def rows(self) -> Vector:
        return self.inner.rows().only(self.names)


def _minus(g: Vector, removed: Vector) -> Vector:
    """`g - removed`, in the parameters of `g`."""
    if removed.parts.keys() == g.parts.keys():
        return g - removed
    taken = removed.parts
    return Vector({name: part - taken[name] if name in taken else part for name, part in g.parts.items()}, g.lead)


def each_row(change: Callable[[Vector], Vector], rows: Vector) -> Vector:
    """Change every row of `[*lead, m, *shape]` as a vector of its own."""
    axis = rows.lead - 1
    unbound = zip(*(part.unbind(axis) for part in rows.parts.values()), strict=True)
    changed = [change(Vector(dict(zip(rows.parts, row, strict=True)), axis)) for row in unbound]
    return Vector(
        {name: torch.stack([row.parts[name] for row in changed], axis) for name in changed[0].parts}, rows.lead
    )


def gram_of_rows(rows: Vector, weights: Vector | None) -> Tensor:
    """`R diag(weights) R^T` of rows `[*lead, m, *shape]`: `[*lead, m, m]` in float64. A weight that is absent is zero."""
    kept, axis = rows if weights is None else rows.only(weights.parts), rows.lead - 1
    sizes = rows.replicas
    total = torch.zeros(*sizes, sizes[-1], dtype=torch.float64, device=rows.like.device)
    for name, part in kept.parts.items():
        flat = part.reshape(*sizes, part.shape[rows.lead :].numel()).double()
        own = flat if weights is None else flat * weights[name].reshape(*sizes[:axis], 1, flat.shape[-1])
        total = total + own @ flat.mT
    return total


def outer_square(slab: Tensor) -> Tensor:
    """`S S^T`, of which only the lower half is worked out: `[..., m, q] -> [..., m, m]`."""
    m = slab.shape[-2]
    if m < 128:
        return slab @ slab.mT
    out = slab.new_empty(*slab.shape[:-1], m)
    edges = [m * k // 4 for k in range(5)]
    for top, bottom in itertools.pairwise(edges):
        block = slab[..., top:bottom, :] @ slab[..., :bottom, :].mT
        out[..., top:bottom, :bottom] = block
        out[..., :top, top:bottom] = block[..., :top].mT
    return out
