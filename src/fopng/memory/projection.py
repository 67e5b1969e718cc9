"""Projecting a gradient away from the directions that old tasks depend on."""

import warnings
from functools import cached_property
from typing import Literal, Protocol, TypeAlias, final

import torch
from torch import Tensor

from fopng.core.vector import Vector
from fopng.curvature.metric import Metric
from fopng.gradients.directions import Basis

Form: TypeAlias = Literal["printed", "orthogonal"]
"""The paper's `P`, or the one that makes the step Fisher-orthogonal (docs/explanation/deviations.md, 1)."""


class IllConditioned(UserWarning):
    """A Gram matrix could not be inverted as it is; its pseudo-inverse was used."""


class Remover(Protocol):
    """What takes something away from a gradient before the step."""

    def __call__(self, g: Vector) -> Vector:
        """What is left of it."""
        ...

    def removed(self, g: Vector) -> Vector:
        """What is taken away."""
        ...


@final
class Projector:
    """`P g = g - B (B^T F^-1 B + eps I)^-1 B^T N g`: built when the Fisher changes, called every step.

    `N = I` in the printed form (eq. 19, 24). `N = F^-1` in the orthogonal one, after which `B^T F^-1 P g = 0` for `eps = 0`.

    Args:
        basis: `B`.
        metric: `F`.
        inverse: `(B^T F^-1 B + eps I)^-1 [*lead, m, m]`, float64.
        condition: an estimate of that of the matrix that was inverted, `[*lead]`.
        form: printed or orthogonal.
    """

    def __init__(self, basis: Basis, metric: Metric, inverse: Tensor, condition: Tensor, form: Form) -> None:
        self.basis, self.metric, self.form = basis, metric, form
        self.inverse, self.condition = inverse, condition

    @classmethod
    def build(cls, basis: Basis, metric: Metric, *, gram_damping: float | Tensor, form: Form) -> "Projector":
        """Form and invert the Gram matrix `A = B^T F^-1 B`.

        Args:
            basis: `B`; an empty one projects nothing.
            metric: `F`, damping included.
            gram_damping: added to the diagonal of `A`: as it is in the printed form, times the mean of that diagonal in the
                orthogonal one. A number, or one a replica `[*lead]`.
            form: printed or orthogonal.
        """
        if form not in ("printed", "orthogonal"):
            raise ValueError(f"Expected projection 'printed' or 'orthogonal', got {form!r}.")
        if basis.count == 0:
            return cls(basis, metric, torch.zeros(0, 0, dtype=torch.float64), torch.ones(()), form)
        A = metric.inverse_gram(basis)
        if not bool(A.isfinite().all()):
            raise ValueError("Expected finite stored gradients and Fisher, got NaN or infinity in their Gram matrix.")
        added = torch.as_tensor(gram_damping, dtype=A.dtype, device=A.device)
        if form == "orthogonal":
            added = added * A.diagonal(dim1=-2, dim2=-1).mean(-1)
        damped = A + added[..., None, None] * torch.eye(basis.count, dtype=A.dtype, device=A.device)
        inverse, condition = invert(damped, damping=gram_damping)
        return cls(basis, metric, inverse, condition, form)

    @cached_property
    def exact_condition(self) -> Tensor:
        """The condition of the matrix that was inverted, `[*lead]`: from its inverse, where that is not a pseudo-inverse."""
        values = torch.linalg.eigvalsh(self.inverse)
        regular = values[..., 0] > 1e-14 * values[..., -1]
        return torch.where(regular, values[..., -1] / values[..., 0], self.condition)

    def __call__(self, g: Vector) -> Vector:
        """Project a gradient."""
        return g if self.basis.count == 0 else self.basis.subtract(self._coefficients(g), g)

    def removed(self, g: Vector) -> Vector:
        """What the projection takes away, `u = B c(g)` (eq. 12), in the parameters of `g`."""
        return g.zeros() if self.basis.count == 0 else self.basis.matvec(self._coefficients(g)).only(g.parts)

    def _coefficients(self, g: Vector) -> Tensor:
        """`c(g) = (B^T F^-1 B + eps I)^-1 B^T N g`, `[*lead, m]`."""
        products = self.basis.rmatvec(g if self.form == "printed" else self.metric.solve(g))
        return (self.inverse @ products.to(self.inverse.dtype).unsqueeze(-1)).squeeze(-1).to(products.dtype)


def invert(matrix: Tensor, *, damping: float | Tensor) -> tuple[Tensor, Tensor]:
    """Invert small symmetric matrices `[*lead, m, m]` in float64: Cholesky first, a pseudo-inverse where that fails.

    Returns the inverses and an estimate of the condition numbers, `[*lead]`.

    >>> invert(torch.tensor([[2.0, 0.0], [0.0, 4.0]], dtype=torch.float64), damping=0.0)[0].diagonal()
    tensor([0.5000, 0.2500], dtype=torch.float64)
    """
    m = matrix.shape[-1]
    factor, failed = torch.linalg.cholesky_ex(matrix)
    pivots = factor.diagonal(dim1=-2, dim2=-1).square()
    condition = pivots.amax(-1) / pivots.amin(-1)
    limit = 1 / (m * torch.finfo(matrix.dtype).eps)
    bad = (failed != 0) | ~(condition < limit)
    if not bool(bad.any()):
        return torch.cholesky_inverse(factor), condition
    values, vectors = torch.linalg.eigh(matrix)
    largest = values.amax(-1, keepdim=True)
    kept = values > largest * m * torch.finfo(torch.float32).eps
    inverted = torch.where(kept, values.reciprocal(), torch.zeros_like(values))
    pseudo = (vectors * inverted.unsqueeze(-2)) @ vectors.mT
    true_condition = largest.squeeze(-1) / values.abs().amin(-1)
    warnings.warn(
        f"Cholesky of the Gram matrix failed (m={m}, condition {float(true_condition[bad].max()):.0e}, gram_damping={damping}); "
        f"its pseudo-inverse of rank {int(kept.sum(-1)[bad].min())} is used. The stored gradients are nearly dependent: raise "
        "gram_damping or lower gradients_per_task.",
        IllConditioned,
        stacklevel=3,
    )
    safe = torch.where(bad[..., None, None], torch.eye(m, dtype=matrix.dtype, device=matrix.device), factor)
    return torch.where(bad[..., None, None], pseudo, torch.cholesky_inverse(safe)), torch.where(
        bad, true_condition, condition
    )
