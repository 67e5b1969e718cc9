"""Directions that a projection removes, `B [p, m]`, as operators."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, final

import torch
from torch import Tensor


class Basis(Protocol):
    """Directions `B [p, m]` that a projection removes."""

    @property
    def count(self) -> int:
        """The number of directions, m."""
        ...

    @property
    def size(self) -> int:
        """The number of parameters, p."""
        ...

    def matvec(self, c: Tensor) -> Tensor:
        """`B c`: `[..., m] -> [..., p]`."""
        ...

    def subtract(self, c: Tensor, g: Tensor) -> Tensor:
        """`g - B c`: `[..., p]`."""
        return g - self.matvec(c)

    def rmatvec(self, x: Tensor) -> Tensor:
        """`B^T x`: `[..., p] -> [..., m]`."""
        ...

    def gram(self, weights: Tensor | None) -> Tensor:
        """`B^T diag(weights) B`: `[..., m, m]` in float64; no weights, no metric."""
        ...

    def dense(self) -> Tensor:
        """`B^T` written out, `[..., m, p]`."""
        ...


@dataclass(frozen=True)
class _Around(Basis):
    """A basis made from another one, with as many directions."""

    inner: Basis

    @property
    def count(self) -> int:
        return self.inner.count

    @property
    def size(self) -> int:
        return self.inner.size


@final
@dataclass(frozen=True)
class ScaledBasis(_Around):
    """A basis with a diagonal in front, `diag(scale) G`: FOPNG's `F_old G`.

    Args:
        inner: `G`.
        scale: `[..., p]`.
    """

    scale: Tensor

    def matvec(self, c: Tensor) -> Tensor:
        return self.inner.matvec(c) * self.scale

    def subtract(self, c: Tensor, g: Tensor) -> Tensor:
        return torch.addcmul(g, self.scale, self.inner.matvec(c), value=-1)

    def rmatvec(self, x: Tensor) -> Tensor:
        return self.inner.rmatvec(x * self.scale)

    def gram(self, weights: Tensor | None) -> Tensor:
        squared = self.scale.square()
        return self.inner.gram(squared if weights is None else squared * weights)

    def dense(self) -> Tensor:
        return self.inner.dense() * self.scale.unsqueeze(-2)


@final
@dataclass(frozen=True)
class ChangedBasis(_Around):
    """A basis with a symmetric matrix in front, `F G`, that is known only by what it does to a vector.

    Args:
        inner: `G`.
        change: `F v`, `[..., p] -> [..., p]`.
    """

    change: Callable[[Tensor], Tensor]

    def matvec(self, c: Tensor) -> Tensor:
        return self.change(self.inner.matvec(c))

    def rmatvec(self, x: Tensor) -> Tensor:
        return self.inner.rmatvec(self.change(x))

    def gram(self, weights: Tensor | None) -> Tensor:
        rows = self.dense().double()
        return (rows if weights is None else rows * weights.unsqueeze(-2)) @ rows.mT

    def dense(self) -> Tensor:
        rows = self.inner.dense()
        return torch.stack([self.change(row) for row in rows.unbind(-2)], -2)


@final
@dataclass(frozen=True)
class MixedBasis(_Around):
    """Combinations of directions, `G mix`: what an empirical Fisher, `G G^T / m`, makes of `G` without being formed.

    Args:
        inner: `G`.
        mix: `[..., m, m]`.
    """

    mix: Tensor

    def matvec(self, c: Tensor) -> Tensor:
        return self.inner.matvec((self.mix.to(c.dtype) @ c.unsqueeze(-1)).squeeze(-1))

    def rmatvec(self, x: Tensor) -> Tensor:
        seen = self.inner.rmatvec(x)
        return (self.mix.mT.to(seen.dtype) @ seen.unsqueeze(-1)).squeeze(-1)

    def gram(self, weights: Tensor | None) -> Tensor:
        return self.mix.mT @ self.inner.gram(weights) @ self.mix

    def dense(self) -> Tensor:
        rows = self.inner.dense()
        return self.mix.mT.to(rows.dtype) @ rows


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
