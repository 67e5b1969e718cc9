"""Kronecker-factored Fishers as metrics: KFAC (Martens and Grosse, 2015) and EKFAC (George et al., 2018)."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor

from fopng.core.layout import ParamLayout
from fopng.curvature.kronecker import KroneckerFisher, LayerBasis, across
from fopng.curvature.metric import Metric
from fopng.curvature.moments import LayerMoments
from fopng.gradients.backward import Names
from fopng.gradients.directions import Basis, MixedBasis
from fopng.gradients.layers import DenseGradients, LayerGradients, LinearGradients
from fopng.gradients.stored import StoredGradients

CHUNK = 16 * 2**20
"""How many numbers of a layer's gradients are written out at a time for a Gram matrix."""


class LayerwiseMetric(Metric):
    """A metric that is a matrix in each of some layers and diagonal elsewhere.

    Args:
        layout: the flat order.
        layers: the layers that have a matrix, by their parameters.
        inverse: of the diagonal, damping included, `[..., p]`.
    """

    def __init__(self, layout: ParamLayout, layers: Mapping[Names, object], inverse: Tensor) -> None:
        self.layout, self._names, self._inverse = layout, frozenset(layers), inverse
        self._inside = {name for names in layers for name in names}

    @abstractmethod
    def layer_gram(self, names: Names, first: LayerGradients, second: LayerGradients) -> Tensor:
        """`g_m^T F^-1 h_n` of two sets of gradients of a layer, `[..., m, n]` in float64."""

    def inverse_gram(self, basis: Basis) -> Tensor:
        if isinstance(basis, MixedBasis):
            return basis.mix.mT @ self.inverse_gram(basis.inner) @ basis.mix
        if not isinstance(basis, StoredGradients) or not self._fits(basis):
            rows = basis.dense()
            solved = torch.stack([self.solve(row) for row in rows.unbind(-2)], -2)
            return rows.double() @ solved.double().mT
        outside = basis.only([name for name in self.layout.names if name not in self._inside])
        gram = basis.like.new_zeros(*self._inverse.shape[:-1], basis.count, basis.count, dtype=torch.float64)
        for names, pieces in basis.blocks():
            for here, first, _ in pieces if names in self._names else []:
                for there, second, _ in pieces:
                    gram[..., here, there] += self.layer_gram(names, first, second)
        return gram + outside.gram(self._inverse) if outside.count else gram

    def _fits(self, memory: StoredGradients) -> bool:
        """Whether the memory is laid out like the metric, and has no weights."""
        alike = all(names in self._names or self._inside.isdisjoint(names) for names in memory.layers)
        return alike and not memory.weighted


@final
class Kronecker(LayerwiseMetric):
    """KFAC: `(A + pi sqrt(damping) I) kron (G + sqrt(damping) / pi I)` in each layer, `diag + damping I` elsewhere.

    The damping is split between the factors, pi the root of the ratio of their mean eigenvalues: the metric stays a Kronecker
    product. A gradient stays factored under it, and a Gram matrix is an elementwise product of two small ones.

    Args:
        layout: the flat order.
        layers: `A` and `G` by the names of a layer's parameters.
        diagonal: for everything else, `[..., p]`.
        damping: lambda; a number, or one a replica `[...]`.
    """

    def __init__(
        self, layout: ParamLayout, layers: Mapping[Names, LayerMoments], diagonal: Tensor, *, damping: float | Tensor
    ) -> None:
        self._values = diagonal + across(damping, diagonal)
        super().__init__(layout, layers, self._values.reciprocal())
        self._damped = {names: _damped(own, damping) for names, own in layers.items()}
        self._inverted = {
            names: LayerMoments(_inverse(own.inputs), _inverse(own.signals)) for names, own in self._damped.items()
        }

    def matvec(self, v: Tensor) -> Tensor:
        return kronecker_matvec(self.layout, self._damped, self._values, v)

    def solve(self, v: Tensor) -> Tensor:
        return kronecker_matvec(self.layout, self._inverted, self._inverse, v)

    def layer_gram(self, names: Names, first: LayerGradients, second: LayerGradients) -> Tensor:
        A, G = self._inverted[names].inputs.double(), self._inverted[names].signals.double()
        one, other = _one_term(first), _one_term(second)
        if one is not None and other is not None:
            return (one[0] @ A @ other[0].mT) * (one[1] @ G @ other[1].mT)
        left, right = (g.slab(0, g.size).double() for g in (first, second))
        solved = G.unsqueeze(-3) @ as_matrices(left, G.shape[-1], len(names) > 1) @ A.unsqueeze(-3)
        return as_vectors(solved, len(names) > 1) @ right.mT


@final
class EigenCorrected(LayerwiseMetric):
    """EKFAC: the eigenvectors of KFAC with the second moments that the gradients have along them, `+ damping I`.

    Args:
        fisher: those of each layer, and a diagonal for everything else.
        damping: lambda; a number, or one a replica `[...]`.
    """

    def __init__(self, fisher: KroneckerFisher, *, damping: float | Tensor) -> None:
        self._damped = fisher.map(lambda values: values + across(damping, values))
        self._inverted = self._damped.map(torch.reciprocal)
        super().__init__(fisher.layout, fisher.layers, self._inverted.diagonal)

    def matvec(self, v: Tensor) -> Tensor:
        return self._damped(v)

    def solve(self, v: Tensor) -> Tensor:
        return self._inverted(v)

    def layer_gram(self, names: Names, first: LayerGradients, second: LayerGradients) -> Tensor:
        own, bias = self._inverted.layers[names], len(names) > 1
        left, right = _Turned(first, own, bias), _Turned(second, own, bias)
        outputs = own.values.shape[-2]
        rows = max(1, CHUNK // (max(first.count, second.count) * own.values.shape[-1] * first.lead.numel()))
        parts = [slice(start, min(start + rows, outputs)) for start in range(0, outputs, rows)]
        weights = own.values.double().unsqueeze(-3)
        products = [(left[part] * weights[..., part, :]).flatten(-2) @ right[part].flatten(-2).mT for part in parts]
        return torch.stack(products).sum(0)


@final
class _Turned:
    """Gradients of a layer along its eigenvectors, `U_g^T M U_a`: some outputs at a time, `[..., m, o, i]` in float64."""

    def __init__(self, gradients: LayerGradients, basis: LayerBasis, bias: bool) -> None:
        U_a, U_g = basis.inputs.double(), basis.signals.double()
        pair = _one_term(gradients)
        self._factors = None if pair is None else (pair[0] @ U_a, pair[1] @ U_g)
        if pair is None:
            M = as_matrices(gradients.slab(0, gradients.size).double(), U_g.shape[-1], bias)
            self._whole = U_g.mT.unsqueeze(-3) @ M @ U_a.unsqueeze(-3)

    def __getitem__(self, part: slice) -> Tensor:
        if self._factors is None:
            return self._whole[..., part, :]
        h, d = self._factors
        return d[..., part].unsqueeze(-1) * h.unsqueeze(-2)


def kronecker_matvec(layout: ParamLayout, layers: Mapping[Names, LayerMoments], diagonal: Tensor, v: Tensor) -> Tensor:
    """`F v` with `A kron G` in some layers, and a diagonal elsewhere: `[..., p] -> [..., p]`."""
    out = v * diagonal
    for names, own in layers.items():
        part, bias = layout.span(names), len(names) > 1
        M = as_matrices(v[..., part], own.signals.shape[-1], bias)
        out[..., part] = as_vectors(own.signals @ M @ own.inputs, bias)
    return out


def kronecker_times(moments: LayerMoments, gradients: LayerGradients, *, bias: bool) -> LayerGradients:
    """`F g` for gradients of a layer whose Fisher is `A kron G`: factors stay factors."""
    A, G = moments.inputs.unsqueeze(-3), moments.signals.unsqueeze(-3)
    if isinstance(gradients, LinearGradients):
        h, i = gradients.homogeneous() @ A, gradients.a.shape[-1]
        return LinearGradients(h[..., :i], gradients.d @ G, bias=bias, ones=h[..., i] if bias else None)
    M = as_matrices(gradients.slab(0, gradients.size), G.shape[-1], bias)
    return DenseGradients(as_vectors(G @ M @ A, bias))


def as_matrices(flat: Tensor, o: int, bias: bool) -> Tensor:
    """A layer's part of vectors, `[..., q]`, as `M [..., o, i]`: the weight, and the bias as its last column."""
    if not bias:
        return flat.reshape(*flat.shape[:-1], o, -1)
    weight = flat[..., :-o].reshape(*flat.shape[:-1], o, -1)
    return torch.cat([weight, flat[..., -o:].unsqueeze(-1)], -1)


def as_vectors(M: Tensor, bias: bool) -> Tensor:
    """And back: `[..., o, i] -> [..., q]`."""
    return torch.cat([M[..., :-1].flatten(-2), M[..., -1]], -1) if bias else M.flatten(-2)


def _damped(moments: LayerMoments, damping: float | Tensor) -> LayerMoments:
    """The damping split between two factors, by their mean eigenvalues."""
    A, G = moments.inputs, moments.signals
    mean_a, mean_g = (matrix.diagonal(dim1=-2, dim2=-1).mean(-1) for matrix in (A, G))
    both = (mean_a > 0) & (mean_g > 0)
    pi = torch.where(both, mean_a / mean_g, 1.0).sqrt()
    root = damping**0.5
    return LayerMoments(_plus(A, root * pi), _plus(G, root / pi))


def _plus(matrix: Tensor, added: Tensor) -> Tensor:
    return matrix + added[..., None, None] * torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)


def _inverse(matrix: Tensor) -> Tensor:
    factor, failed = torch.linalg.cholesky_ex(matrix.double())
    if bool(failed.any()) or not bool(factor.isfinite().all()):
        raise ValueError("Expected a positive definite metric, got one that is not. Raise damping.")
    inverse: Tensor = torch.cholesky_inverse(factor)
    return inverse.to(matrix)


def _one_term(gradients: LayerGradients) -> tuple[Tensor, Tensor] | None:
    """The factors `[..., m, i]` and `[..., m, o]` of gradients that are one outer product each, in float64."""
    if not isinstance(gradients, LinearGradients) or gradients.positions > 1:
        return None
    return gradients.homogeneous().squeeze(-2).double(), gradients.d.squeeze(-2).double()
