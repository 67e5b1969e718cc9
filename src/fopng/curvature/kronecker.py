"""A Fisher that is a Kronecker product in each Linear and Conv layer and diagonal elsewhere, by its eigenvectors.

For a layer with `M [o, i]`, its weight with the bias as last column, `F M = G M A` with `A` the moments of its inputs and `G` those
of its output gradients. With `A = U_a diag(l_a) U_a^T` and `G = U_g diag(l_g) U_g^T` any function of the layer's Fisher is
`f(F) M = U_g [(U_g^T M U_a) * f(l_g l_a^T)] U_a^T`: two small products a side.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import torch
from torch import Tensor

from fopng.core.tree import node
from fopng.core.vector import Vector, broadcast
from fopng.curvature.factors import DiagonalFactor, Factor, LowRankFactor, like, size
from fopng.curvature.moments import LayerMoments
from fopng.gradients.forms import PLAIN, Form
from fopng.gradients.layers import Names

DIRECT = 1024
"""Up to so many inputs all eigenvectors are worked out, although fewer may be kept."""

ITERATIONS = 6
"""Of the subspace iteration beyond that."""

OVERSAMPLING = 32
"""How many vectors more than are kept it works on."""

Spectral = Callable[[Tensor], Tensor]
"""A function of eigenvalues, entry by entry."""


@node
@final
@dataclass(frozen=True, eq=False)
class LayerBasis:
    """One layer's Fisher by its eigenvectors: `U_a kron U_g`, with the eigenvalues of each pair.

    Args:
        inputs: `U_a [*lead, i, k]`, of `A`; with a bias the last input is the 1 that it is multiplied with. None for a diagonal A.
        signals: `U_g [*lead, o, j]`, of `G`. None for a diagonal G.
        values: the eigenvalues, `[*lead, j, k]`.
        others: the eigenvalue that stands for those of all inputs outside `U_a`, `[*lead, j, 1]`; None where there are none.
        bias: whether the layer has one.
        beyond: the same of all outputs outside `U_g`, `[*lead, 1, k]`; one more where there are `others`, for what is outside both.
        form: how the weight is read as `[o, i]`.
    """

    inputs: Tensor | None
    signals: Tensor | None
    values: Tensor
    others: Tensor | None
    bias: bool
    beyond: Tensor | None = None
    form: Form = PLAIN

    @classmethod
    def of(cls, moments: LayerMoments, *, bias: bool, rank: int | None = None) -> "LayerBasis":
        """Take a layer's moments apart, in float64.

        Args:
            moments: `A` and `G`.
            bias: whether the last input is a 1 for the bias.
            rank: how many eigenvectors of `A` to keep, the largest; the rest share the mean of their eigenvalues. None for all.
                Of more than 1,024 outputs as many are kept.
        """
        kind = like(moments.inputs)
        wide = size(moments.signals) > DIRECT
        l_a, U_a, rest_a = _side(moments.inputs, rank)
        l_g, U_g, rest_g = _side(moments.signals, rank if wide else None)
        values, others, beyond = l_g.unsqueeze(-1) * l_a.unsqueeze(-2), None, None
        if rest_a is not None:
            others = (l_g * rest_a.unsqueeze(-1)).unsqueeze(-1).to(kind)
        if rest_g is not None:
            along = l_a if rest_a is None else torch.cat([l_a, rest_a.unsqueeze(-1)], -1)
            beyond = (along * rest_g.unsqueeze(-1)).unsqueeze(-2).to(kind)
        U_a, U_g = (None if U is None else U.to(kind).contiguous() for U in (U_a, U_g))
        return cls(U_a, U_g, values.to(kind), others, bias, beyond, moments.form)

    def rotate(self, a: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
        """The factors of gradients along the eigenvectors: `a U_a [*lead, m, t, k]` and `d U_g [*lead, m, t, j]`."""
        if self.inputs is not None:
            a = a @ self.inputs.unsqueeze(-3)
        return a, d if self.signals is None else d @ self.signals.unsqueeze(-3)

    def map(self, function: Spectral) -> "LayerBasis":
        """`f(F)`: the same eigenvectors, a function of the eigenvalues."""
        others, beyond = (None if own is None else function(own) for own in (self.others, self.beyond))
        return replace(self, values=function(self.values), others=others, beyond=beyond)

    @property
    def groups(self) -> int:
        """How many more leading axes there are: one where the weight has groups."""
        return int(self.form.groups > 1)

    @cached_property
    def _elsewhere(self) -> Tensor | None:
        """What is done to inputs outside `U_a`: `U_g diag(others) U_g^T`, `[*lead, o, o]`."""
        if self.others is None or self.signals is None:
            return None if self.others is None else torch.diag_embed(self.others.squeeze(-1))
        return (self.signals * self.others.mT) @ self.signals.mT

    @cached_property
    def _within(self) -> Tensor:
        """The eigenvalues of the inputs in `U_a`, less what is done everywhere."""
        return self.values if self.others is None else self.values - self.others

    @cached_property
    def _inputs(self) -> tuple[Tensor, Tensor]:
        """The rows of `U_a` for the weight's inputs, `[*lead, i, k]`, and for the bias, `[*lead, 1, k]`."""
        assert self.inputs is not None
        i = self.inputs.shape[-2] - self.bias
        return self.inputs[..., :i, :], self.inputs[..., i:, :]

    @property
    def weight_inputs(self) -> int:
        """How many inputs the weight has."""
        whole = self.values.shape[-1] if self.inputs is None else self.inputs.shape[-2]
        return whole - self.bias

    def apply(self, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """`F g` of the weight's part of g, `[*lead, o, i]`, and the bias's, `[*lead, o]`; None for one that is zero."""
        if self.inputs is None or self.signals is None or self.beyond is not None:
            return self._apply_in_parts(weight, bias)
        (U, u), elsewhere = self._inputs, self._elsewhere
        C = weight @ U
        if bias is not None:
            b = bias.unsqueeze(-1)
            C += b * u
        # the small side in between: k columns of it, not i
        C = self.signals @ ((self.signals.mT @ C) * self._within)
        Y = C @ U.mT if elsewhere is None else _plus_product(elsewhere @ weight, C, U.mT)
        if bias is None:
            return Y, None
        y = C @ u.mT if elsewhere is None else C @ u.mT + elsewhere @ b
        return Y, y.squeeze(-1)

    def _apply_in_parts(self, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The same where a side is diagonal, or outputs are outside `U_g`: what is inside both, one, and none."""
        M = weight
        if self.bias:
            column = M.new_zeros((*M.shape[:-1], 1)) if bias is None else bias.unsqueeze(-1)
            M = torch.cat([M, column], -1)
        C = M if self.inputs is None else M @ self.inputs
        k, beyond = self.values.shape[-1], self.beyond
        along = 0.0 if beyond is None else beyond[..., :k]
        corner: Tensor | float = 0.0 if beyond is None or self.others is None else beyond[..., k:]
        outside: Tensor | float = 0.0 if self.others is None else self.others
        Y = self._back(self._out((self.values - outside - along + corner) * self._in(C)))
        if self.others is not None:
            Y = Y + self._out((self.others - corner) * self._in(M)) + corner * M
        if beyond is not None:
            Y = Y + self._back(C * (along - corner))
        if not self.bias:
            return Y, None
        return Y[..., :-1], None if bias is None else Y[..., -1]

    def _in(self, M: Tensor) -> Tensor:
        """`U_g^T M`."""
        return M if self.signals is None else self.signals.mT @ M

    def _out(self, M: Tensor) -> Tensor:
        """`U_g M`."""
        return M if self.signals is None else self.signals @ M

    def _back(self, M: Tensor) -> Tensor:
        """`M U_a^T`."""
        return M if self.inputs is None else M @ self.inputs.mT

    def apply_to_bias(self, bias: Tensor) -> Tensor:
        """The bias's part of `F g` where g is zero in the weight."""
        found = self.apply(bias.new_zeros(*bias.shape, self.weight_inputs), bias)[1]
        assert found is not None
        return found


def _side(factor: Factor, rank: int | None) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Eigenvalues, eigenvectors and the eigenvalue that stands for all others of one factor, in float64."""
    if isinstance(factor, DiagonalFactor):
        return factor.values.double(), None, None
    s = size(factor)
    k = s if rank is None else min(rank, s)
    if isinstance(factor, LowRankFactor):
        values, vectors = factor.values.double(), factor.vectors.double()
        k = min(k, values.shape[-1])
        left = factor.rest.double() + values[..., k:].sum(-1)
        return values[..., :k], vectors[..., :k], left / max(1, s - k)
    values, vectors = _eigen(factor) if s <= DIRECT or 2 * k > s else _leading(factor, k)
    values, vectors = values[..., -k:], vectors[..., -k:]
    if k == s:
        return values, vectors, None
    left = factor.double().diagonal(dim1=-2, dim2=-1).sum(-1) - values.sum(-1)
    return values, vectors, left.clamp(min=0) / (s - k)


def _plus_product(total: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """`total + left @ right`, in one go where that is possible."""
    if total.dim() == 2 == right.dim():
        return total.addmm_(left, right)
    if total.dim() == 3 == right.dim() == left.dim():
        return total.baddbmm_(left, right)
    return total.add_(left @ right)


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


@node
@final
@dataclass(frozen=True, eq=False)
class KroneckerOperator:
    """A symmetric matrix over all parameters: a Kronecker product in some layers, diagonal elsewhere.

    Args:
        layers: by the names of their parameters.
        diagonal: of the parameters outside them.
        others: the eigenvalue of every parameter that is in neither; None for zero.
    """

    layers: dict[Names, LayerBasis]
    diagonal: Vector
    others: Tensor | None = None

    def map(self, function: Spectral) -> "KroneckerOperator":
        """`f(F)`: a function of the eigenvalues, entry by entry."""
        layers = {names: own.map(function) for names, own in self.layers.items()}
        return KroneckerOperator(layers, self.diagonal.map(function), function(self._zero))

    @property
    def _zero(self) -> Tensor:
        if self.others is not None:
            return self.others
        held = [own.values for own in self.layers.values()] or list(self.diagonal.parts.values())
        return held[0].new_zeros(())

    def __call__(self, g: Vector) -> Vector:
        """`F g`, in the parameters of `g`."""
        parts, diagonal = g.parts, self.diagonal.parts
        out: dict[str, Tensor] = {}
        for names, layer in self.layers.items():
            weight, bias = parts.get(names[0]), parts.get(names[-1]) if layer.bias else None
            form = layer.form
            own = None if bias is None else form.bias(bias)
            if weight is not None:
                Y, y = layer.apply(form.matrices(weight, g.lead), own)
                out[names[0]] = form.weight(Y, g.lead, weight.shape[g.lead :])
                if y is not None:
                    out[names[-1]] = form.whole_bias(y)
            elif own is not None:
                out[names[-1]] = form.whole_bias(layer.apply_to_bias(own))
        for name, part in parts.items():
            if name not in out:
                out[name] = part * (diagonal[name] if name in diagonal else self._other(part))
        return Vector(out, g.lead)

    def _other(self, like: Tensor) -> float | Tensor:
        return 0.0 if self.others is None else broadcast(self.others, like)


@final
@dataclass(frozen=True)
class Shrinkage:
    """`(I + s F)^-1`: what a soft constraint `s |v|^2_F` leaves of a gradient.

    Args:
        left: that matrix, by its eigenvectors.
    """

    left: KroneckerOperator

    def __call__(self, g: Vector) -> Vector:
        """`(I + s F)^-1 g`."""
        return self.left(g)

    def removed(self, g: Vector) -> Vector:
        """The part of g that it takes away."""
        return g - self.left(g)
