"""Riemannian metrics on the parameters: the Fisher `F`, as an operator."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import final

import torch
from torch import Tensor

from fopng.core.kernels import kernel, usable
from fopng.gradients.directions import Basis


class Metric(ABC):
    """A positive definite matrix `F [..., p, p]`, damping included."""

    @abstractmethod
    def matvec(self, v: Tensor) -> Tensor:
        """`F v`: `[..., p] -> [..., p]`."""

    @abstractmethod
    def solve(self, v: Tensor) -> Tensor:
        """`F^-1 v`: `[..., p] -> [..., p]`."""

    def solve_with_length(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """`F^-1 v` and `v^T F^-1 v`: `[..., p] -> [..., p], [...]`."""
        solved = self.solve(v)
        return solved, torch.linalg.vecdot(v, solved)

    @abstractmethod
    def inverse_gram(self, basis: Basis) -> Tensor:
        """`B^T F^-1 B`: `[..., m, m]` in float64."""

    def norm(self, v: Tensor) -> Tensor:
        """The Fisher norm `sqrt(v^T F v)` (eq. 11): `[..., p] -> [...]`."""
        return self.inner(v, v).sqrt()

    def inner(self, u: Tensor, v: Tensor) -> Tensor:
        """The Fisher inner product `u^T F v` (eq. 11): `[..., p] -> [...]`."""
        return (u * self.matvec(v)).sum(-1)


@final
class Identity(Metric):
    """The Euclidean metric."""

    def matvec(self, v: Tensor) -> Tensor:
        return v

    def solve(self, v: Tensor) -> Tensor:
        return v

    def inverse_gram(self, basis: Basis) -> Tensor:
        return basis.gram(None)


@final
class Diagonal(Metric):
    """A diagonal metric, `diag(values) + damping I`.

    Args:
        values: the diagonal, `[..., p]`.
        damping: lambda, added to it; a number, or one a replica `[...]`.

    >>> Diagonal(torch.tensor([1.0, 3.0]), damping=1.0).solve(torch.tensor([4.0, 4.0]))
    tensor([2., 1.])
    """

    def __init__(self, values: Tensor, *, damping: float | Tensor) -> None:
        added = damping.unsqueeze(-1) if isinstance(damping, Tensor) else damping
        self.values = values + added
        smallest, largest = self.values.aminmax()
        if not bool((smallest > 0) & (largest < torch.inf)):
            raise ValueError(
                f"Expected a positive definite metric, got entries from {float(smallest):.3g} to {float(largest):.3g} "
                f"(damping={damping}). Raise damping; if they are not finite, the Fisher was estimated at parameters that are not."
            )
        self.inverse = self.values.reciprocal()

    def matvec(self, v: Tensor) -> Tensor:
        return v * self.values

    def solve(self, v: Tensor) -> Tensor:
        return v * self.inverse

    def solve_with_length(self, v: Tensor) -> tuple[Tensor, Tensor]:
        if v.dim() == 2 and v.shape == self.inverse.shape and v.is_contiguous() and usable(v, self.inverse):
            natural_direction: Callable[..., tuple[Tensor, Tensor]] = kernel("steps.natural_direction")
            return natural_direction(v, self.inverse.contiguous())
        return super().solve_with_length(v)

    def inverse_gram(self, basis: Basis) -> Tensor:
        return basis.gram(self.inverse)


@final
class Full(Metric):
    """A full metric, `matrix + damping I`, for small models; factorised once, in float64.

    Args:
        matrix: symmetric, `[..., p, p]`.
        damping: lambda, added to its diagonal; a number, or one a replica `[...]`.
    """

    def __init__(self, matrix: Tensor, *, damping: float | Tensor) -> None:
        added = damping[..., None, None] if isinstance(damping, Tensor) else damping
        eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
        self.matrix = matrix + added * eye
        factor, failed = torch.linalg.cholesky_ex(self.matrix.double())
        if bool(failed.any()) or not bool(factor.isfinite().all()):
            raise ValueError(
                f"Expected a positive definite metric, got one that is not (damping={damping}). Raise damping."
            )
        self._factor = factor

    def matvec(self, v: Tensor) -> Tensor:
        return (self.matrix @ v.unsqueeze(-1)).squeeze(-1)

    def solve(self, v: Tensor) -> Tensor:
        return torch.cholesky_solve(v.double().unsqueeze(-1), self._factor).squeeze(-1).to(v.dtype)

    def inverse_gram(self, basis: Basis) -> Tensor:
        rows = basis.dense().double()
        half: Tensor = torch.linalg.solve_triangular(self._factor, rows.mT, upper=False)
        return half.mT @ half
