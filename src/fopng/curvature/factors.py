"""One factor of a Kronecker product: a matrix written out, a diagonal, or a few directions and a multiple of the identity."""

from dataclasses import dataclass
from typing import TypeAlias, final

import torch
from torch import Tensor

from fopng.core.tree import node
from fopng.core.vector import broadcast

WIDE = 4096
"""Up to so many inputs or outputs a factor is written out."""

KEPT = 256
"""How many directions are kept of a wider one."""

BLOCK = 512
"""How many rows are added to a wide one at a time."""


@node
@final
@dataclass(frozen=True, eq=False)
class DiagonalFactor:
    """A diagonal matrix: of a table, how often each row is looked up.

    Args:
        values: `[*lead, s]`.
    """

    values: Tensor


@node
@final
@dataclass(frozen=True, eq=False)
class LowRankFactor:
    """The leading eigenvectors of a matrix; all directions outside them share one eigenvalue.

    Args:
        rows: each eigenvector times the root of its eigenvalue, `[*lead, k, s]`.
        rest: the trace of what is outside them, `[*lead]`.
    """

    rows: Tensor
    rest: Tensor

    @property
    def values(self) -> Tensor:
        """The eigenvalues that are kept, `[*lead, k]`."""
        return self.rows.square().sum(-1)

    @property
    def vectors(self) -> Tensor:
        """The eigenvectors, `[*lead, s, k]`."""
        return torch.nn.functional.normalize(self.rows, dim=-1).mT

    @property
    def outside(self) -> Tensor:
        """The eigenvalue outside them, `[*lead]`."""
        return self.rest / max(1, self.rows.shape[-1] - self.rows.shape[-2])

    def mapped(self, values: Tensor, outside: Tensor) -> "LowRankFactor":
        """The same eigenvectors with other eigenvalues."""
        rows = self.vectors.mT * values.sqrt().unsqueeze(-1)
        return LowRankFactor(rows, outside * (self.rows.shape[-1] - self.rows.shape[-2]))


Factor: TypeAlias = Tensor | DiagonalFactor | LowRankFactor
"""A symmetric matrix without negative eigenvalues, `[*lead, s, s]`."""


def size(factor: Factor) -> int:
    """The number of its rows, s."""
    return (factor.rows if isinstance(factor, LowRankFactor) else like(factor)).shape[-1]


def like(factor: Factor) -> Tensor:
    """One of its tensors, for device and precision."""
    if isinstance(factor, Tensor):
        return factor
    return factor.values if isinstance(factor, DiagonalFactor) else factor.rest


def trace(factor: Factor) -> Tensor:
    """`[*lead]`."""
    if isinstance(factor, Tensor):
        return factor.diagonal(dim1=-2, dim2=-1).sum(-1)
    return factor.values.sum(-1) + (factor.rest if isinstance(factor, LowRankFactor) else 0)


def diagonal(factor: Factor) -> Tensor:
    """Its diagonal, `[*lead, s]`."""
    if isinstance(factor, Tensor):
        return factor.diagonal(dim1=-2, dim2=-1)
    if isinstance(factor, DiagonalFactor):
        return factor.values
    own = factor.rows.square().sum(-2)
    return own + factor.outside.unsqueeze(-1) * (1 - factor.vectors.square().sum(-1))


def scaled(factor: Factor, number: Tensor | float) -> Factor:
    """Times a number, or one for each replica `[*lead]`."""
    if isinstance(factor, Tensor):
        return factor * broadcast(number, factor)
    if isinstance(factor, DiagonalFactor):
        return DiagonalFactor(factor.values * broadcast(number, factor.values))
    root = number.sqrt() if isinstance(number, Tensor) else number**0.5
    return LowRankFactor(factor.rows * broadcast(root, factor.rows), factor.rest * broadcast(number, factor.rest))


def added(one: Factor, other: Factor) -> Factor:
    """The sum of two."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one + other
    if isinstance(one, LowRankFactor) and isinstance(other, LowRankFactor):
        return leading(torch.cat([one.rows, other.rows], -2), one.rest + other.rest)
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        return written_out(one) + written_out(other)
    return DiagonalFactor(diagonal(one) + diagonal(other))


def written_out(factor: Factor) -> Tensor:
    """As a matrix."""
    if isinstance(factor, Tensor):
        return factor
    if isinstance(factor, DiagonalFactor):
        return torch.diag_embed(factor.values)
    U = factor.vectors
    eye = torch.eye(size(factor), dtype=U.dtype, device=U.device)
    return factor.rows.mT @ factor.rows + factor.outside[..., None, None] * (eye - U @ U.mT)


def times(factor: Factor, M: Tensor) -> Tensor:
    """`F M`, of `M [*lead, s, k]`."""
    if isinstance(factor, Tensor):
        return factor @ M
    if isinstance(factor, DiagonalFactor):
        return factor.values.unsqueeze(-1) * M
    inside, outside = factor.vectors.mT @ M, factor.outside[..., None, None]
    return factor.vectors @ (inside * (factor.values.unsqueeze(-1) - outside)) + outside * M


def plus(factor: Factor, number: Tensor) -> Factor:
    """`F + c I`, of a c for each replica `[*lead]`."""
    if isinstance(factor, Tensor):
        eye = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
        return factor + number[..., None, None] * eye
    if isinstance(factor, DiagonalFactor):
        return DiagonalFactor(factor.values + number.unsqueeze(-1))
    return factor.mapped(factor.values + number.unsqueeze(-1), factor.outside + number)


def evened(factor: Factor, share: float | Tensor) -> Factor:
    """`(1 - e) F + e (tr F / s) I`: the same trace, spread more evenly."""
    if isinstance(factor, Tensor):
        each = factor.diagonal(dim1=-2, dim2=-1)
        even = torch.diag_embed(each.mean(-1, keepdim=True).expand_as(each))
        return torch.lerp(factor, even, broadcast(share, factor))
    mean = trace(factor) / size(factor)
    kept = 1 - share
    return plus(scaled(factor, kept), mean * broadcast(share, mean))


def cut(factor: Factor, part: slice) -> Factor:
    """Some of its rows and columns."""
    if isinstance(factor, Tensor):
        return factor[..., part, part]
    if isinstance(factor, DiagonalFactor):
        return DiagonalFactor(factor.values[..., part])
    return leading(factor.rows[..., part], factor.rest)


def padded(factor: Factor, missing: int) -> Factor:
    """With so many zero rows and columns more."""
    if not missing:
        return factor
    if isinstance(factor, Tensor):
        return torch.nn.functional.pad(factor, (0, missing, 0, missing))
    if isinstance(factor, DiagonalFactor):
        return DiagonalFactor(torch.nn.functional.pad(factor.values, (0, missing)))
    return LowRankFactor(torch.nn.functional.pad(factor.rows, (0, missing)), factor.rest)


def leading(rows: Tensor, rest: Tensor) -> LowRankFactor:
    """`R^T R`, of `R [*lead, m, s]`, and something outside: its leading directions."""
    gram = (rows @ rows.mT).double()
    values, mix = torch.linalg.eigh(gram)
    lost = values[..., :-KEPT].clamp(min=0).sum(-1)
    kept = (mix[..., -KEPT:].mT.to(rows) @ rows).flip(-2)
    return LowRankFactor(kept, rest + lost.to(rest))


def streamed(rows: Tensor, old: LowRankFactor | None) -> LowRankFactor:
    """`R^T R`, of `R [*lead, m, s]`, added to what was there, some rows at a time."""
    found = old or LowRankFactor(rows[..., :0, :], rows.new_zeros(rows.shape[:-2]))
    for part in rows.split(BLOCK, -2):
        found = leading(torch.cat([found.rows, part], -2), found.rest)
    return found
