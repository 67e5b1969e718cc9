"""What layers were given, as directions that must not be disturbed: the memory of gradient projection (Saha et al., 2021, 2023).

A step `dW` changes a layer's answer to an input a by `dW a`: steps whose rows are orthogonal to the inputs of old tasks change
none of their answers. With a bias the input is `[a; 1]`, and the step `[dW | db]`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, final

import torch
import torch.nn.functional as F
from torch import Tensor

from fopng.core.layout import ParamLayout
from fopng.gradients.backward import Names

_ROUNDING = 1e-12
"""A share of the squared length that rounding may leave."""

Weigh: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""The importance of directions, from their singular values in the latest task and their importance before, `[..., i]` each."""


@final
@dataclass(frozen=True)
class Subspace:
    """Orthonormal directions `M` of a layer's inputs and how much each counts, at the layer's full width.

    Replicas have as many as they need: a direction of importance 0 is none, and its column is zero.

    Args:
        basis: `M [..., i, i]`.
        importance: from 0 to 1, `[..., i]`; never increasing from one direction to the next.
    """

    basis: Tensor
    importance: Tensor

    @classmethod
    def empty(cls, like: Tensor) -> "Subspace":
        """No directions, for a layer with inputs like those of `A [..., i, i]`."""
        return cls(torch.zeros_like(like), torch.zeros_like(like[..., 0]))

    def widened(self, size: int) -> "Subspace":
        """The same for a layer that has got more inputs, at the end: nothing is known about them."""
        more = size - self.importance.shape[-1]
        return self if more == 0 else Subspace(F.pad(self.basis, (0, more, 0, more)), F.pad(self.importance, (0, more)))

    def learnt(self, moment: Tensor, *, threshold: float | Tensor, weigh: Weigh) -> "Subspace":
        """Add what a task needs, the k leading singular vectors of `R - M M^T R`, with `R` what the layer was given.

        k is the smallest for which `|M M^T R|^2 + |(R - M M^T R)_k|^2 >= threshold |R|^2` (Saha et al., 2021, eq. 5 and 9).

        Args:
            moment: `A = R R^T / n [..., i, i]`, whose eigenvectors are the singular vectors of R.
            threshold: epsilon, a number, or one a replica `[...]`.
            weigh: gives the importance of old and new directions.
        """
        A, M = moment.double(), self.basis.double()
        outside = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device) - M @ M.mT
        values, vectors = torch.linalg.eigh(outside @ A @ outside)
        values, vectors = values.flip(-1).clamp(min=0), vectors.flip(-1)
        known = (M * (A @ M)).sum(-2).clamp(min=0)
        total = A.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True)
        before = known.sum(-1, keepdim=True) + values.cumsum(-1) - values
        enough = torch.as_tensor(threshold, dtype=A.dtype, device=A.device).unsqueeze(-1) * total
        needed = (before < enough - _ROUNDING * total) & (values > _ROUNDING * total)
        counts = torch.cat([self.importance > 0, needed], -1)
        squares = torch.where(counts, torch.cat([known, values], -1), 0.0)
        old = F.pad(self.importance.double(), (0, values.shape[-1]))
        importance = torch.where(counts, weigh(squares.sqrt(), old), 0.0)
        return _leading(torch.cat([M, vectors], -1), importance, moment)


def _leading(basis: Tensor, importance: Tensor, like: Tensor) -> Subspace:
    """The directions that count, the most important first: `[..., i, 2 i]` down to `[..., i, i]`, of the kind of `like`."""
    order = importance.argsort(dim=-1, descending=True, stable=True)[..., : basis.shape[-2]]
    importance = importance.gather(-1, order)
    columns = basis.gather(-1, order.unsqueeze(-2).expand(*order.shape[:-1], basis.shape[-2], -1))
    return Subspace((columns * (importance > 0).unsqueeze(-2)).to(like), importance.to(like))


@final
class LayerwiseProjector:
    """`g - g M Lambda M^T` in every layer, and nothing of the gradient where a parameter is frozen.

    Args:
        layout: the flat order.
        layers: `M` and `Lambda` of each layer, by the names of its parameters: weight, then bias if it has one.
        frozen: 1 for parameters that do not move, 0 for the others, `[..., p]`.
    """

    def __init__(self, layout: ParamLayout, layers: Mapping[Names, Subspace], frozen: Tensor) -> None:
        self._layout, self._frozen = layout, frozen
        self._layers = [(names, _product(space)) for names, space in layers.items()]

    def removed(self, g: Tensor) -> Tensor:
        """What is taken away: `[..., p] -> [..., p]`."""
        out = g * self._frozen
        given, places = self._layout.split(g), self._layout.split(out)
        for names, (left, right) in self._layers:
            outputs = self._layout.shapes[names[0]][0]
            weight, place = (part[names[0]].view(*g.shape[:-1], outputs, -1) for part in (given, places))
            inputs = weight.shape[-1]
            inside = weight @ left[..., :inputs, :]
            if len(names) > 1:
                inside += given[names[1]].unsqueeze(-1) * left[..., inputs:, :]
            along = inside if right is None else inside @ right
            place.copy_(along[..., :inputs])
            if len(names) > 1:
                places[names[1]].copy_(along[..., inputs])
        return out

    def __call__(self, g: Tensor) -> Tensor:
        """What is left of a gradient: `[..., p] -> [..., p]`."""
        return g - self.removed(g)


def _product(space: Subspace) -> tuple[Tensor, Tensor | None]:
    """`M Lambda` and `M^T` of the directions that there are; their product and None where that is quicker."""
    rank = int((space.importance > 0).sum(-1).max())
    M = space.basis[..., :rank]
    left = M * space.importance[..., None, :rank]
    return (left, M.mT.contiguous()) if 2 * rank < M.shape[-2] else (left @ M.mT, None)
