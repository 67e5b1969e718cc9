"""Riemannian metrics on the parameters: the Fisher `F`, as an operator on Vectors."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor

from fopng.core.vector import Vector, broadcast
from fopng.gradients.directions import Basis


class Metric(ABC):
    """A positive definite matrix `F [*lead, p, p]`, damping included."""

    @abstractmethod
    def matvec(self, v: Vector) -> Vector:
        """`F v`."""

    @abstractmethod
    def solve(self, v: Vector) -> Vector:
        """`F^-1 v`."""

    @abstractmethod
    def inverse_gram(self, basis: Basis) -> Tensor:
        """`B^T F^-1 B`: `[*lead, m, m]` in float64."""

    @final
    def norm(self, v: Vector) -> Tensor:
        """The Fisher norm `sqrt(v^T F v)` (eq. 11), `[*lead]`."""
        return self.inner(v, v).sqrt()

    @final
    def inner(self, u: Vector, v: Vector) -> Tensor:
        """The Fisher inner product `u^T F v` (eq. 11), `[*lead]`."""
        return u.dot(self.matvec(v))


@final
class Identity(Metric):
    """The Euclidean metric."""

    def matvec(self, v: Vector) -> Vector:
        return v

    def solve(self, v: Vector) -> Vector:
        return v

    def inverse_gram(self, basis: Basis) -> Tensor:
        return basis.gram(None)


@final
class Diagonal(Metric):
    """A diagonal metric, `diag(values) + damping I`.

    Args:
        values: the diagonal; zero for a parameter that is absent.
        damping: lambda, added to it.

    >>> v = Vector({"w": torch.tensor([4.0, 4.0])})
    >>> Diagonal(Vector({"w": torch.tensor([1.0, 3.0])}), damping=1.0).solve(v)["w"]
    tensor([2., 1.])
    """

    def __init__(self, values: Vector, *, damping: float) -> None:
        self.values, self._damping = values.shifted(damping), damping
        check_positive(self.values, damping)
        self.inverse = self.values.map(torch.reciprocal)

    def matvec(self, v: Vector) -> Vector:
        return v * self._extended(self.values, v)

    def solve(self, v: Vector) -> Vector:
        known = all(map(self.inverse.parts.__contains__, v.parts))
        return v * (self.inverse if known else self._extended(self.inverse, v))

    def _extended(self, own: Vector, v: Vector) -> Vector:
        """The diagonal with a part for each parameter of v: where it has none, the damping is all there is."""
        alone = {name: torch.zeros_like(part) + broadcast(self._damping, part) for name, part in v.parts.items()}
        if own is self.inverse:
            alone = {name: part.reciprocal() for name, part in alone.items()}
        return Vector({**alone, **own.parts}, v.lead)

    def inverse_gram(self, basis: Basis) -> Tensor:
        return basis.gram(self.inverse)


def check_positive(values: Vector, damping: float) -> None:
    """Raise unless all entries of a diagonal, damping included, are above zero and finite."""
    ends = [torch.stack(part.aminmax()) for part in values.parts.values() if part.numel()]
    if not ends:
        return
    smallest, largest = torch.stack(ends).amin(0)[0], torch.stack(ends).amax(0)[1]
    if not bool((smallest > 0) & (largest < torch.inf)):
        raise ValueError(
            f"Expected a positive definite metric, got a diagonal from {float(smallest):.3g} to {float(largest):.3g} "
            f"(damping={damping}). Raise damping; if they are not finite, the Fisher was estimated at parameters that are not."
        )


@final
class Full(Metric):
    """A full metric, `matrix + damping I`, for small models; factorised once, in float64.

    A matrix moves all parameters, so results have all of them.

    Args:
        matrix: symmetric, `[*lead, p, p]`.
        shapes: the parameters, in the order of its rows.
        damping: lambda, added to its diagonal.
    """

    def __init__(self, matrix: Tensor, shapes: Mapping[str, torch.Size], *, damping: float) -> None:
        eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
        self.matrix, self._shapes = matrix + broadcast(damping, matrix) * eye, shapes
        factor, failed = torch.linalg.cholesky_ex(self.matrix.double())
        if bool(failed.any()) or not bool(factor.isfinite().all()):
            raise ValueError(
                f"Expected a positive definite metric, got one that is not (damping={damping}). Raise damping."
            )
        self._factor = factor

    def matvec(self, v: Vector) -> Vector:
        return matrix_vector(self.matrix, self._shapes, v)

    def solve(self, v: Vector) -> Vector:
        flat = v.filled(self._shapes).flat()
        solved = torch.cholesky_solve(flat.double().unsqueeze(-1), self._factor).squeeze(-1).to(flat.dtype)
        return split(solved, self._shapes)

    def inverse_gram(self, basis: Basis) -> Tensor:
        rows = basis.rows().filled(self._shapes).flat().double()
        half: Tensor = torch.linalg.solve_triangular(self._factor, rows.mT, upper=False)
        return half.mT @ half


def matrix_vector(matrix: Tensor, shapes: Mapping[str, torch.Size], v: Vector) -> Vector:
    """`M v` of a matrix over all parameters, `[*lead, p, p]`; a result has all of them."""
    flat = v.only(shapes).filled(shapes).flat()
    return split((matrix @ flat.unsqueeze(-1)).squeeze(-1), shapes)


def split(flat: Tensor, shapes: Mapping[str, torch.Size]) -> Vector:
    """View a flat vector `[*lead, p]` as one by parameters; the last axis must be in their order."""
    lead = flat.shape[:-1]
    pieces = flat.split([torch.Size(shape).numel() for shape in shapes.values()], -1)
    parts = {name: piece.view((*lead, *shape)) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)}
    return Vector(parts, len(lead))


def trust_region_step(metric: Metric, g: Vector, *, radius: float | Tensor) -> Vector:
    """The step of Fisher norm `radius` along `F^-1 g`, eq. 18: `eta F^-1 g / sqrt(g^T F^-1 g)`; zero where g is.

    Args:
        metric: `F`.
        g: the (projected) gradient.
        radius: eta, a number, or one for each replica `[*lead]`.
    """
    direction = metric.solve(g)
    squared = g.dot(direction)
    # zero stays zero, and what is not finite stays so
    return direction * torch.where(squared > 0, radius * squared.rsqrt(), squared)
