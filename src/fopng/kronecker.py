"""A Fisher that is a Kronecker product in each Linear and Conv layer and diagonal elsewhere, by its eigenvectors.

For a layer with `M [o, i]`, its weight with the bias as last column, `F M = G M A` with `A` the moments of what it is given and `G`
those of what comes back. With `A = U_a diag(l_a) U_a^T` and `G = U_g diag(l_g) U_g^T` any function of the layer's Fisher is
`f(F) M = U_g [(U_g^T M U_a) * f(l_g l_a^T)] U_a^T`: two small products a side.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from fopng.moments import LayerMoments
from fopng.parameters import ParamLayout
from fopng.pulling import Names

Spectral = Callable[[Tensor], Tensor]
"""A function of eigenvalues, entry by entry."""


@final
@dataclass(frozen=True)
class LayerBasis:
    """One layer's Fisher by its eigenvectors: `U_a kron U_g`, with the eigenvalues of each pair.

    Args:
        inputs: `U_a [..., i, k]`, of `A`; with a bias the last input is the 1 that it is multiplied with.
        signals: `U_g [..., o, o]`, of `G`.
        values: the eigenvalues, `[..., o, k]`.
        others: the eigenvalue that stands for those of all inputs outside `U_a`, `[..., o, 1]`; None where there are none.
        bias: whether the layer has one.
    """

    inputs: Tensor
    signals: Tensor
    values: Tensor
    others: Tensor | None
    bias: bool

    @classmethod
    def of(cls, moments: LayerMoments, *, bias: bool, rank: int | None = None) -> "LayerBasis":
        """Take a layer's moments apart, in float64.

        Args:
            moments: `A` and `G`.
            bias: whether the last input is a 1 for the bias.
            rank: how many eigenvectors of `A` to keep, the largest; the rest share the mean of their eigenvalues. None for all.
        """
        l_a, U_a = _eigen(moments.inputs)
        l_g, U_g = _eigen(moments.signals)
        k = l_a.shape[-1] if rank is None else min(rank, l_a.shape[-1])
        values, others = l_g.unsqueeze(-1) * l_a[..., -k:].unsqueeze(-2), None
        if k < l_a.shape[-1]:
            others = (l_g * l_a[..., :-k].mean(-1, keepdim=True)).unsqueeze(-1).to(moments.inputs)
        like = moments.inputs
        return cls(U_a[..., -k:].to(like).contiguous(), U_g.to(like).contiguous(), values.to(like), others, bias)

    def map(self, function: Spectral) -> "LayerBasis":
        """`f(F)`: the same eigenvectors, a function of the eigenvalues."""
        others = None if self.others is None else function(self.others)
        return replace(self, values=function(self.values), others=others)

    def apply(self, g: Tensor, out: Tensor) -> None:
        """Write `F g` into a place of its own, `[..., q] -> [..., q]`."""
        o, i = self.signals.shape[-1], self.inputs.shape[-2] - self.bias
        W, U = g[..., : o * i].unflatten(-1, (o, i)), self.inputs[..., :i, :]
        H = self.signals.mT @ W
        C = H @ U
        if self.bias:
            # what the bias is multiplied with: the last column of M, the last row of U_a
            h, u = self.signals.mT @ g[..., o * i :].unsqueeze(-1), self.inputs[..., i:, :]
            C += h * u
        C *= self.values if self.others is None else self.values - self.others
        Y = C @ U.mT
        if self.others is not None:
            Y += H * self.others
        out[..., : o * i].unflatten(-1, (o, i)).copy_(self.signals @ Y)
        if self.bias:
            y = C @ u.mT if self.others is None else C @ u.mT + h * self.others
            out[..., o * i :].copy_((self.signals @ y).squeeze(-1))


def _eigen(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of a moment, in float64; eigenvalues that are but its rounding are zero."""
    values, vectors = torch.linalg.eigh(matrix.double())
    rounding = 10 * torch.finfo(matrix.dtype).eps * values[..., -1:]
    return torch.where(values > rounding, values, 0.0), vectors


@final
class KroneckerFisher:
    """A Fisher `F [..., p, p]`: Kronecker products in some layers, diagonal elsewhere.

    Args:
        layout: the flat order.
        layers: by the names of their parameters.
        diagonal: for every parameter outside them, `[..., p]`.
    """

    def __init__(self, layout: ParamLayout, layers: Mapping[Names, LayerBasis], diagonal: Tensor) -> None:
        self.layout, self.layers, self.diagonal = layout, layers, diagonal
        self._parts = sorted(((layout.span(names), own) for names, own in layers.items()), key=lambda x: x[0].start)
        edges = [0, *(edge for part, _ in self._parts for edge in (part.start, part.stop)), layout.size]
        self._outside = [slice(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b]

    def map(self, function: Spectral) -> "KroneckerFisher":
        """`f(F)`: a function of the eigenvalues, entry by entry."""
        layers = {names: own.map(function) for names, own in self.layers.items()}
        return KroneckerFisher(self.layout, layers, function(self.diagonal))

    def __call__(self, g: Tensor) -> Tensor:
        """`F g`: `[..., p] -> [..., p]`."""
        out = torch.empty_like(g)
        for part in self._outside:
            torch.mul(g[..., part], self.diagonal[..., part], out=out[..., part])
        for part, layer in self._parts:
            layer.apply(g[..., part], out[..., part])
        return out


@final
@dataclass(frozen=True)
class Shrinkage:
    """`(I + s F)^-1`: what a soft constraint `s |v|^2_F` leaves of a gradient.

    Args:
        left: that matrix, by its eigenvectors.
    """

    left: KroneckerFisher

    def __call__(self, g: Tensor) -> Tensor:
        """`(I + s F)^-1 g`: `[..., p] -> [..., p]`."""
        return self.left(g)

    def removed(self, g: Tensor) -> Tensor:
        """What it takes away: `[..., p] -> [..., p]`."""
        return g - self.left(g)
