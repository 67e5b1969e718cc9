"""What layers were given, as directions that must not be disturbed: the memory of gradient projection (Saha et al., 2021, 2023).

A step `dW` changes a layer's answer to an input a by `dW a`: steps whose rows are orthogonal to the inputs of old tasks change
none of their answers. With a bias the input is `[a; 1]`, and the step `[dW | db]`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias, final

import torch
import torch.nn.functional as F
from torch import Tensor

from fopng.core.tree import node
from fopng.core.vector import Vector
from fopng.gradients.forms import PLAIN, Form
from fopng.gradients.layers import Names

_ROUNDING = 1e-12
"""A share of the squared length that rounding may leave."""

Weigh: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""The importance of directions, from their singular values in the latest task and their importance before, `[*lead, i]` each."""


@node
@final
@dataclass(frozen=True, eq=False)
class Subspace:
    """Orthonormal directions `M` of a layer's inputs and how much each counts, at the layer's full width.

    Replicas have as many as they need: a direction of importance 0 is none, and its column is zero.

    Args:
        basis: `M [*lead, i, i]`.
        importance: from 0 to 1, `[*lead, i]`; never increasing from one direction to the next.
        form: how the layer's weight is read as a matrix `[o, i]`; with groups there is an axis for them before `i`.
    """

    basis: Tensor
    importance: Tensor
    form: Form = PLAIN

    @classmethod
    def empty(cls, like: Tensor, form: Form = PLAIN) -> "Subspace":
        """No directions, for a layer with inputs like those of `A [*lead, i, i]`."""
        return cls(torch.zeros_like(like), torch.zeros_like(like[..., 0]), form)

    def with_bias(self, size: int) -> "Subspace":
        """The same for a layer of so many inputs, whose bias may have been frozen until now.

        What old tasks gave it along the bias was not seen: a 1, so that a direction of its own covers it all.
        """
        if size == self.importance.shape[-1] or not self.importance.shape[-1]:
            return self
        basis, importance = F.pad(self.basis, (1, 0, 0, 1)), F.pad(self.importance, (1, 0), value=1.0)
        basis[..., -1, 0] = 1.0
        return replace(self, basis=basis, importance=importance)

    def of_one(self, *, weight: bool) -> "Subspace":
        """The directions for a layer of which only the weight moves, or only the bias: these, cut.

        Cut directions are no longer orthonormal; what takes their place is the nearest that is so within its rank, each with the
        importance that it had.
        """
        M = self.basis.double()
        rows = torch.zeros_like(M[..., :1])
        rows[..., :-1, :] = weight
        rows[..., -1:, :] = not weight
        U, values, Vh = torch.linalg.svd(M * rows)
        nearest = (U * (values > _ROUNDING**0.5).unsqueeze(-2)) @ Vh
        return replace(self, basis=nearest.to(self.basis))

    @cached_property
    def product(self) -> tuple[Tensor, Tensor | None]:
        """`M Lambda` and `M^T` of the directions that there are; their product and None where that is quicker."""
        rank = int((self.importance > 0).sum(-1).max())
        M = self.basis[..., :rank]
        left = M * self.importance[..., None, :rank]
        return (left, M.mT.contiguous()) if 2 * rank < M.shape[-2] else (left @ M.mT, None)

    def learnt(self, moment: Tensor, *, threshold: float | Tensor, weigh: Weigh) -> "Subspace":
        """Add what a task needs, the k leading singular vectors of `R - M M^T R`, with `R` what the layer was given.

        k is the smallest for which `|M M^T R|^2 + |(R - M M^T R)_k|^2 >= threshold |R|^2` (Saha et al., 2021, eq. 5 and 9).

        Args:
            moment: `A = R R^T / n [*lead, i, i]`, whose eigenvectors are the singular vectors of R.
            threshold: epsilon, a number, or one a replica `[*lead]`.
            weigh: gives the importance of old and new directions.
        """
        A, M = moment.double(), self.basis.double()
        outside = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device) - M @ M.mT
        values, vectors = torch.linalg.eigh(outside @ A @ outside)
        values, vectors = values.flip(-1).clamp(min=0), vectors.flip(-1)
        known = (M * (A @ M)).sum(-2).clamp(min=0)
        total = A.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True)
        before = known.sum(-1, keepdim=True) + values.cumsum(-1) - values
        share = torch.as_tensor(threshold, dtype=A.dtype, device=A.device)
        share = share.reshape(*share.shape, *[1] * (total.dim() - share.dim()))
        enough = share * total
        needed = (before < enough - _ROUNDING * total) & (values > _ROUNDING * total)
        counts = torch.cat([self.importance > 0, needed], -1)
        squares = torch.where(counts, torch.cat([known, values], -1), 0.0)
        old = F.pad(self.importance.double(), (0, values.shape[-1]))
        importance = torch.where(counts, weigh(squares.sqrt(), old), 0.0)
        basis, importance = _leading(torch.cat([M, vectors], -1), importance, moment)
        return replace(self, basis=basis, importance=importance)


def _leading(basis: Tensor, importance: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """The directions that count, the most important first: `[*lead, i, 2 i]` down to `[*lead, i, i]`, of the kind of `like`."""
    order = importance.argsort(dim=-1, descending=True, stable=True)[..., : basis.shape[-2]]
    importance = importance.gather(-1, order)
    columns = basis.gather(-1, order.unsqueeze(-2).expand(*order.shape[:-1], basis.shape[-2], -1))
    kept = columns * (importance > 0).unsqueeze(-2)
    return kept.to(like), importance.to(like)


@final
@dataclass(frozen=True, eq=False)
class LayerwiseProjector:
    """`g - g M Lambda M^T` in every layer, and nothing of the gradient where a parameter is frozen.

    Args:
        layers: `M` and `Lambda` of each layer, by the names of its parameters: weight, then bias if it has one.
        frozen: 1 for parameters that do not move, 0 or absent for the others.
    """

    layers: Mapping[Names, Subspace]
    frozen: Vector

    def removed(self, g: Vector) -> Vector:
        """What is taken away; of the parameters of which that is nothing, it has no part."""
        out = (g * self.frozen).parts
        for names, space in self.layers.items():
            weight, bias = g.parts.get(names[0]), g.parts.get(names[-1]) if len(names) > 1 else None
            if weight is None and bias is None:
                continue
            left, right = space.product
            inputs = left.shape[-2] - (len(names) > 1)
            terms = []
            form = space.form
            if weight is not None:
                terms.append(form.matrices(weight, g.lead) @ left[..., :inputs, :])
            if bias is not None:
                terms.append(form.bias(bias).unsqueeze(-1) * left[..., inputs:, :])
            inside = terms[0] + terms[1] if len(terms) > 1 else terms[0]
            along = inside if right is None else inside @ right
            if weight is not None:
                out[names[0]] = form.weight(along[..., :inputs], g.lead, weight.shape[g.lead :])
            if bias is not None:
                out[names[1]] = form.whole_bias(along[..., inputs])
        return Vector(out, g.lead)

    def __call__(self, g: Vector) -> Vector:
        """What is left of a gradient."""
        return g - self.removed(g)
