"""A Fisher that is a Kronecker product in each Linear and Conv layer and diagonal elsewhere, by its eigenvectors.

For a layer with `M [o, i]`, its weight with the bias as last column, `F M = G M A` with `A` the moments of what it is given and `G`
those of what comes back. With `A = U_a diag(l_a) U_a^T` and `G = U_g diag(l_g) U_g^T` any function of the layer's Fisher is
`f(F) M = U_g [(U_g^T M U_a) * f(l_g l_a^T)] U_a^T`: two small products a side.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import torch
from torch import Tensor

from fopng.core.batch import Batch, sample_count
from fopng.core.layout import ParamLayout
from fopng.core.likelihood import Generators, Labels, Signals
from fopng.curvature.moments import LayerMoments
from fopng.gradients.backward import Names
from fopng.gradients.layers import LayerGradients, LinearGradients
from fopng.gradients.per_sample import GradientSource
from fopng.parallel.collectives import ALONE, Peers

DIRECT = 1024
"""Up to so many inputs all eigenvectors are worked out, although fewer may be kept."""

ITERATIONS = 6
"""Of the subspace iteration beyond that."""

OVERSAMPLING = 32
"""How many vectors more than are kept it works on."""

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
        like, size = moments.inputs, moments.inputs.shape[-1]
        k = size if rank is None else min(rank, size)
        l_a, U_a = _eigen(moments.inputs) if size <= DIRECT or 2 * k > size else _leading(moments.inputs, k)
        l_g, U_g = _eigen(moments.signals)
        values, others = l_g.unsqueeze(-1) * l_a[..., -k:].unsqueeze(-2), None
        if k < size:
            left = moments.inputs.double().diagonal(dim1=-2, dim2=-1).sum(-1) - l_a[..., -k:].sum(-1)
            others = (l_g * (left.clamp(min=0) / (size - k)).unsqueeze(-1)).unsqueeze(-1).to(like)
        return cls(U_a[..., -k:].to(like).contiguous(), U_g.to(like).contiguous(), values.to(like), others, bias)

    def turn(self, gradients: LinearGradients) -> tuple[Tensor, Tensor]:
        """The factors of gradients along the eigenvectors: `a U_a [..., m, t, k]` and `d U_g [..., m, t, o]`."""
        return gradients.homogeneous() @ self.inputs.unsqueeze(-3), gradients.d @ self.signals.unsqueeze(-3)

    def map(self, function: Spectral) -> "LayerBasis":
        """`f(F)`: the same eigenvectors, a function of the eigenvalues."""
        others = None if self.others is None else function(self.others)
        return replace(self, values=function(self.values), others=others)

    @cached_property
    def _elsewhere(self) -> Tensor | None:
        """What is done to inputs outside `U_a`: `U_g diag(others) U_g^T`, `[..., o, o]`."""
        return None if self.others is None else (self.signals * self.others.mT) @ self.signals.mT

    @cached_property
    def _within(self) -> Tensor:
        """The eigenvalues of the inputs in `U_a`, less what is done everywhere."""
        return self.values if self.others is None else self.values - self.others

    def apply(self, g: Tensor, out: Tensor) -> None:
        """Write `F g` into a place of its own, `[..., q] -> [..., q]`."""
        o, i = self.signals.shape[-1], self.inputs.shape[-2] - self.bias
        W, U = g[..., : o * i].unflatten(-1, (o, i)), self.inputs[..., :i, :]
        C = W @ U
        if self.bias:
            # what the bias is multiplied with: the last column of M, the last row of U_a
            b, u = g[..., o * i :].unsqueeze(-1), self.inputs[..., i:, :]
            C += b * u
        # the small side in between: k columns of it, not i
        C = self.signals @ ((self.signals.mT @ C) * self._within)
        Y = C @ U.mT if self._elsewhere is None else _plus_product(self._elsewhere @ W, C, U.mT)
        out[..., : o * i].unflatten(-1, (o, i)).copy_(Y)
        if self.bias:
            y = C @ u.mT if self._elsewhere is None else C @ u.mT + self._elsewhere @ b
            out[..., o * i :].copy_(y.squeeze(-1))


def _plus_product(total: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """`total + left @ right`, in one go where that is possible."""
    if total.dim() == 2 == right.dim():
        return total.addmm_(left, right)
    if total.dim() == 3 == right.dim() == left.dim():
        return total.baddbmm_(left, right)
    return total.add_(left @ right)


def across(setting: float | Tensor, values: Tensor) -> float | Tensor:
    """A setting as it multiplies values `[..., *]`: a number, or one a replica."""
    if not isinstance(setting, Tensor):
        return setting
    return setting.reshape(*setting.shape, *[1] * (values.dim() - setting.dim()))


def _eigen(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of a moment, in float64; eigenvalues that are but its rounding are zero."""
    values, vectors = torch.linalg.eigh(matrix.double())
    rounding = 10 * torch.finfo(matrix.dtype).eps * values[..., -1:]
    return torch.where(values > rounding, values, 0.0), vectors


def _leading(matrix: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest eigenvalues and their vectors of a large moment: subspace iteration, the last step in float64.

    All of them would take minutes for a layer with thousands of inputs. What is found is orthonormal to rounding and exact for the
    matrix that it stands for; vectors near the k-th may be mixed with those after it.
    """
    start = torch.Generator().manual_seed(0)
    block = torch.randn(matrix.shape[-1], k + OVERSAMPLING, generator=start).to(matrix)
    Q = torch.linalg.qr(matrix @ block).Q
    for _ in range(ITERATIONS):
        Q = torch.linalg.qr(matrix @ Q).Q
    values, vectors = _eigen(Q.mT @ (matrix @ Q))
    return values[..., -k:], Q.double() @ vectors[..., -k:]


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


@final
class SquareSums:
    """The mean square of gradients along the eigenvectors of each layer, `[..., o, i]`: the eigenvalues of EKFAC.

    Args:
        source: the model.
        signals: what is sent back from the outputs.
        bases: the eigenvectors, all of them, by layer.
        parameters: `[*lead, p]` instead of the model's own, for replicas; the batches then are `[*lead, n, ...]`.
        generator: draws noise and labels; one for all, or one for each replica.
        peers: the processes that add up batches of their own.
    """

    def __init__(
        self,
        source: GradientSource,
        signals: Signals | Labels,
        bases: Mapping[Names, LayerBasis],
        *,
        parameters: Tensor | None = None,
        generator: Generators = None,
        peers: Peers = ALONE,
    ) -> None:
        self._source, self._signals, self._bases, self._peers = source, signals, bases, peers
        self._parameters, self._generator = parameters, generator
        self._sums: dict[Names, Tensor] = {}
        self._count = 0

    def add(self, batch: Batch) -> None:
        """Add the samples of a batch."""
        self._source.show_factors(
            batch, self._signals, self._see, parameters=self._parameters, generator=self._generator
        )
        self._count += sample_count(batch, 0 if self._parameters is None else self._parameters.dim() - 1)

    def _see(self, number: int, names: Names, layer: LayerGradients) -> None:
        if names not in self._bases or not isinstance(layer, LinearGradients):
            return
        h, d = self._bases[names].turn(layer)
        # with one position the square of a product is the product of squares
        alone = layer.positions == 1
        squares = d.squeeze(-2).square().mT @ h.squeeze(-2).square() if alone else (d.mT @ h).square().sum(-3)
        self._sums[names] = self._sums[names] + squares if names in self._sums else squares

    def mean(self) -> dict[Names, Tensor]:
        """The mean squares; zero for a layer that was not reached."""
        sums, count = self._peers.sum_named(self._sums), self._peers.total(self._count)
        found = {names: total / count for names, total in sums.items()}
        return {names: found.get(names, torch.zeros_like(own.values)) for names, own in self._bases.items()}
