"""Kronecker-factored Fishers as metrics: KFAC (Martens and Grosse, 2015) and EKFAC (George et al., 2018)."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import final

import torch
from torch import Tensor

from fopng.core.vector import Vector, broadcast
from fopng.curvature.factors import DiagonalFactor, Factor, LowRankFactor, plus, size, times, trace, written_out
from fopng.curvature.kronecker import KroneckerOperator, LayerBasis
from fopng.curvature.metric import Diagonal, Metric
from fopng.curvature.moments import LayerMoments
from fopng.gradients.directions import Basis, CombinedBasis, StoredGradients, each_row
from fopng.gradients.forms import PLAIN
from fopng.gradients.layers import DenseGradients, LayerGradients, LinearGradients, Names

CHUNK = 16 * 2**20
"""How many numbers of a layer's gradients are written out at a time for a Gram matrix."""


class LayerwiseMetric(Metric):
    """A metric that is a matrix in each of some layers and diagonal elsewhere. Results have the parameters of what is given.

    Args:
        layers: the layers that have a matrix, by their parameters.
        outside: the diagonal metric of all other parameters.
    """

    def __init__(self, layers: Mapping[Names, object], outside: Diagonal) -> None:
        self._names, self._outside = frozenset(layers), outside
        self._inside = frozenset(name for names in layers for name in names)

    @abstractmethod
    def layer_gram(self, names: Names, first: LayerGradients, second: LayerGradients) -> Tensor:
        """`g_m^T F^-1 h_n` of two sets of gradients of a layer, `[*lead, m, n]` in float64."""

    def inverse_gram(self, basis: Basis) -> Tensor:
        if isinstance(basis, CombinedBasis):
            return basis.mix.mT @ self.inverse_gram(basis.inner) @ basis.mix
        if not isinstance(basis, StoredGradients) or not self._fits(basis):
            rows = basis.rows()
            return _products(rows, each_row(self.solve, rows))
        some = next(pieces for _, pieces in basis.blocks())[0][1]
        gram = basis.like.new_zeros(*some.lead, basis.count, basis.count, dtype=torch.float64)
        for names, pieces in basis.blocks():
            for here, first, _ in pieces if names in self._names else []:
                for there, second, _ in pieces:
                    gram[..., here, there] += self.layer_gram(names, first, second)
        outside = basis.only([name for names in basis.layers for name in names if name not in self._inside])
        return gram + self._outside.inverse_gram(outside) if outside.count else gram

    def _fits(self, stored: StoredGradients) -> bool:
        """Whether gradients are stored by the layers of the metric, and without weights."""
        alike = all(names in self._names or self._inside.isdisjoint(names) for names in stored.layers)
        return alike and not stored.weighted


def _products(first: Vector, second: Vector) -> Tensor:
    """Inner products of rows `[*lead, m, *shape]` and others `[*lead, n, *shape]`: `[*lead, m, n]` in float64."""
    total = torch.zeros((), dtype=torch.float64)
    for name, part in first.parts.items():
        left, right = (x.reshape(*x.shape[: first.lead], -1).double() for x in (part, second[name]))
        total = total.to(left) + left @ right.mT
    return total


@final
class Kronecker(LayerwiseMetric):
    """KFAC: `(A + pi sqrt(damping) I) kron (G + sqrt(damping) / pi I)` in each layer, `diag + damping I` elsewhere.

    The damping is split between the factors, pi the root of the ratio of their mean eigenvalues: the metric stays a Kronecker
    product. A gradient stays factored under it, and a Gram matrix is an elementwise product of two small ones.

    Args:
        layers: `A` and `G` by the names of a layer's parameters.
        diagonal: for all other parameters.
        damping: lambda.
    """

    def __init__(self, layers: Mapping[Names, LayerMoments], diagonal: Vector, *, damping: float) -> None:
        super().__init__(layers, Diagonal(diagonal, damping=damping))
        self._damped = {names: _damped(own, damping) for names, own in layers.items()}
        self._inverted = {
            names: replace(own, inputs=_inverse(own.inputs), signals=_inverse(own.signals))
            for names, own in self._damped.items()
        }

    def matvec(self, v: Vector) -> Vector:
        outside = self._outside.matvec(v.without(self._inside))
        return Vector({**outside.parts, **kronecker_matvec(self._damped, v)}, v.lead)

    def solve(self, v: Vector) -> Vector:
        outside = self._outside.solve(v.without(self._inside))
        return Vector({**outside.parts, **kronecker_matvec(self._inverted, v)}, v.lead)

    def layer_gram(self, names: Names, first: LayerGradients, second: LayerGradients) -> Tensor:
        own = self._inverted[names]
        if not is_plain(own):
            return _products(_vector(names, first), each_row(self.solve, _vector(names, second)))
        A, G = written_out(own.inputs).double(), written_out(own.signals).double()
        one, other = _one_term(first), _one_term(second)
        if one is not None and other is not None:
            return (one[0] @ A @ other[0].mT) * (one[1] @ G @ other[1].mT)
        left, right = gradient_matrices(first).double(), gradient_matrices(second).double()
        return (G.unsqueeze(-3) @ left @ A.unsqueeze(-3)).flatten(-2) @ right.flatten(-2).mT


@final
class EigenCorrected(LayerwiseMetric):
    """EKFAC: the eigenvectors of KFAC with the second moments that the gradients have along them, `+ damping I`.

    Args:
        fisher: those of each layer, and a diagonal for all other parameters.
        damping: lambda.
    """

    def __init__(self, fisher: KroneckerOperator, *, damping: float) -> None:
        super().__init__(fisher.layers, Diagonal(fisher.diagonal, damping=damping))
        self._damped = fisher.map(lambda values: values + broadcast(damping, values))
        self._inverted = self._damped.map(torch.reciprocal)

    def matvec(self, v: Vector) -> Vector:
        return self._damped(v)

    def solve(self, v: Vector) -> Vector:
        return self._inverted(v)

    def layer_gram(self, names: Names, first: LayerGradients, second: LayerGradients) -> Tensor:
        own = self._inverted.layers[names]
        if own.form != PLAIN or own.inputs is None or own.signals is None or own.beyond is not None:
            return _products(_vector(names, first), each_row(self.solve, _vector(names, second)))
        left, right = _Rotated(first, own), _Rotated(second, own)
        outputs = own.values.shape[-2]
        rows = max(1, CHUNK // (max(first.count, second.count) * own.values.shape[-1] * first.lead.numel()))
        parts = [slice(start, min(start + rows, outputs)) for start in range(0, outputs, rows)]
        weights = own.values.double().unsqueeze(-3)
        products = [(left[part] * weights[..., part, :]).flatten(-2) @ right[part].flatten(-2).mT for part in parts]
        return torch.stack(products).sum(0)


@final
class _Rotated:
    """Gradients of a layer along its eigenvectors, `U_g^T M U_a`: some outputs at a time, `[*lead, m, o, i]` in float64."""

    def __init__(self, gradients: LayerGradients, basis: LayerBasis) -> None:
        assert basis.inputs is not None
        assert basis.signals is not None
        U_a, U_g = basis.inputs.double(), basis.signals.double()
        pair = _one_term(gradients)
        self._factors = None if pair is None else (pair[0] @ U_a, pair[1] @ U_g)
        if pair is None:
            self._whole = U_g.mT.unsqueeze(-3) @ gradient_matrices(gradients).double() @ U_a.unsqueeze(-3)

    def __getitem__(self, part: slice) -> Tensor:
        if self._factors is None:
            return self._whole[..., part, :]
        h, d = self._factors
        return d[..., part].unsqueeze(-1) * h.unsqueeze(-2)


def kronecker_matvec(layers: Mapping[Names, LayerMoments], v: Vector) -> dict[str, Tensor]:
    """`(A kron G) v` in some layers, of the parameters of `v` in them; one that is absent is zero."""
    out = {}
    for names, own in layers.items():
        weight, bias = v.parts.get(names[0]), v.parts.get(names[-1]) if len(names) > 1 else None
        if weight is None and bias is None:
            continue
        biased = len(names) > 1
        M = own.form.matrices(weight, v.lead) if weight is not None else None
        joined = _layer_matrix(M, None if bias is None else own.form.bias(bias), own, bias_column=biased)
        M = times(own.inputs, times(own.signals, joined).mT).mT
        if weight is not None:
            out[names[0]] = own.form.weight(M[..., :-1] if biased else M, v.lead, weight.shape[v.lead :])
        if bias is not None:
            out[names[-1]] = own.form.whole_bias(M[..., -1])
    return out


def _layer_matrix(M: Tensor | None, bias: Tensor | None, own: LayerMoments, *, bias_column: bool) -> Tensor:
    """A layer's part of a vector as `M [*lead, o, i]`: the weight, and the bias as its last column."""
    if M is None:
        assert bias is not None
        M = bias.new_zeros(*bias.shape, size(own.inputs) - 1)
    if not bias_column:
        return M
    return torch.cat([M, (M.new_zeros(M.shape[:-1]) if bias is None else bias).unsqueeze(-1)], -1)


def is_plain(own: LayerMoments) -> bool:
    """Whether a layer's gradients are `d a^T` as they are stored, and its factors are written out."""
    return own.form == PLAIN and isinstance(own.inputs, Tensor) and isinstance(own.signals, Tensor)


def _vector(names: Names, gradients: LayerGradients) -> Vector:
    """Gradients of a layer as rows `[*lead, m, *shape]`."""
    return Vector({name: gradients.rows(k) for k, name in enumerate(names)}, len(gradients.lead) + 1)


def gradient_matrices(gradients: LayerGradients) -> Tensor:
    """Gradients of a layer written out as `M [*lead, m, o, i]`: the weight, and the bias, if there is one, as its last column."""
    weight = gradients.rows(0).flatten(len(gradients.lead) + 2)
    return weight if len(gradients.shapes) == 1 else torch.cat([weight, gradients.rows(1).unsqueeze(-1)], -1)


def kronecker_times(moments: LayerMoments, gradients: LayerGradients) -> LayerGradients:
    """`F g` for gradients of a layer whose Fisher is `A kron G`: factors stay factors."""
    bias = len(gradients.shapes) > 1
    if not is_plain(moments):
        names = ("weight", "bias")[: 1 + bias]
        rows = each_row(lambda v: Vector(kronecker_matvec({names: moments}, v), v.lead), _vector(names, gradients))
        return DenseGradients(tuple(rows.parts.values()), len(gradients.lead))
    A, G = written_out(moments.inputs).unsqueeze(-3), written_out(moments.signals).unsqueeze(-3)
    if isinstance(gradients, LinearGradients):
        h, i = gradients.homogeneous() @ A, gradients.a.shape[-1]
        return LinearGradients(h[..., :i], gradients.d @ G, bias, h[..., i] if bias else None)
    M = G @ gradient_matrices(gradients) @ A
    weight = (M[..., :-1] if bias else M).reshape(*M.shape[:-2], *gradients.shapes[0])
    return DenseGradients((weight, M[..., -1]) if bias else (weight,), len(gradients.lead))


def _damped(moments: LayerMoments, damping: float) -> LayerMoments:
    """The damping split between two factors, by their mean eigenvalues."""
    A, G = moments.inputs, moments.signals
    mean_a, mean_g = (trace(matrix) / size(matrix) for matrix in (A, G))
    both = (mean_a > 0) & (mean_g > 0)
    pi = torch.where(both, mean_a / mean_g, 1.0).sqrt()
    root = damping**0.5
    return replace(moments, inputs=plus(A, root * pi), signals=plus(G, root / pi))


def _inverse(matrix: Factor) -> Factor:
    if isinstance(matrix, DiagonalFactor):
        return DiagonalFactor(_checked(matrix.values).reciprocal())
    if isinstance(matrix, LowRankFactor):
        return matrix.mapped(_checked(matrix.values).reciprocal(), _checked(matrix.outside).reciprocal())
    factor, failed = torch.linalg.cholesky_ex(matrix.double())
    if bool(failed.any()) or not bool(factor.isfinite().all()):
        raise ValueError(NOT_POSITIVE)
    inverse: Tensor = torch.cholesky_inverse(factor)
    return inverse.to(matrix)


def _checked(values: Tensor) -> Tensor:
    if not bool((values > 0).all()):
        raise ValueError(NOT_POSITIVE)
    return values


NOT_POSITIVE = "Expected a positive definite metric, got one that is not. Raise damping."


def _one_term(gradients: LayerGradients) -> tuple[Tensor, Tensor] | None:
    """The factors `[*lead, m, i]` and `[*lead, m, o]` of gradients that are one outer product each, in float64."""
    if not isinstance(gradients, LinearGradients) or gradients.positions > 1:
        return None
    return gradients.homogeneous().squeeze(-2).double(), gradients.d.squeeze(-2).double()
