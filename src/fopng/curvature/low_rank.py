"""A Fisher of low rank plus a diagonal: `F = diag(d) + U^T U`, the leading directions whole, the rest by its diagonal.

Rows such as `U [*lead, k, p]` are Vectors whose last leading axis numbers them.
"""

from functools import reduce
from typing import final

import torch
from torch import Tensor

from fopng.core.vector import Vector
from fopng.curvature.metric import Diagonal, Metric
from fopng.gradients.directions import Basis, each_row


@final
class LowRankPlusDiagonal(Metric):
    """A metric `diag(values) + U^T U + damping I`, inverted by Woodbury's identity. Results have all its parameters.

    Args:
        values: the diagonal.
        rows: `U [*lead, k, p]`; rows of zeros are none.
        damping: lambda, added to the diagonal.

    >>> rows = Vector({"w": torch.tensor([[1.0, 1.0]])}, lead=1)
    >>> metric = LowRankPlusDiagonal(Vector({"w": torch.zeros(2)}), rows, damping=1.0)
    >>> metric.solve(Vector({"w": torch.tensor([3.0, 0.0])}))["w"]
    tensor([ 2., -1.])
    """

    def __init__(self, values: Vector, rows: Vector, *, damping: float) -> None:
        self.diagonal, self.rows = Diagonal(values, damping=damping), rows
        if broken := rows.name_nonfinite():
            raise ValueError(
                f"Expected a positive definite metric, got directions with NaN or infinity in {broken}. The Fisher was estimated "
                "at parameters that are not finite."
            )
        self._scaled = each_row(self.diagonal.solve, rows)
        inner = row_products(self._scaled, rows).double()
        # I + U D^-1 U^T, never singular: its eigenvalues are 1 at the least
        self._factor = torch.linalg.cholesky(inner + torch.eye(inner.shape[-1], dtype=inner.dtype, device=inner.device))

    def matvec(self, v: Vector) -> Vector:
        return self.diagonal.matvec(v) + combine_rows(self.rows, row_vector_products(self.rows, v))

    def solve(self, v: Vector) -> Vector:
        products = row_vector_products(self._scaled, v)
        c = torch.cholesky_solve(products.double().unsqueeze(-1), self._factor).squeeze(-1)
        return self.diagonal.solve(v) - combine_rows(self._scaled, c.to(products.dtype))

    def inverse_gram(self, basis: Basis) -> Tensor:
        # B^T D^-1 B - W^T (I + U D^-1 U^T)^-1 W with W = U D^-1 B
        axis = self._scaled.lead - 1
        rows = zip(*(part.unbind(axis) for part in self._scaled.parts.values()), strict=True)
        W = [basis.rmatvec(Vector(dict(zip(self._scaled.parts, row, strict=True)), axis)) for row in rows]
        half: Tensor = torch.linalg.solve_triangular(self._factor, torch.stack(W, -2).double(), upper=False)
        return self.diagonal.inverse_gram(basis) - half.mT @ half


def low_rank_product(values: Vector, rows: Vector, v: Vector) -> Vector:
    """`(diag(values) + U^T U) v`."""
    return v * values + combine_rows(rows, row_vector_products(rows, v))


def _flat(part: Tensor, lead: int) -> Tensor:
    return part.reshape(*part.shape[:lead], -1)


def row_products(first: Vector, second: Vector) -> Tensor:
    """`R S^T` of rows `[*lead, m, p]` and `[*lead, n, p]`: `[*lead, m, n]`."""
    lead = first.lead
    shared = [name for name in first.parts if name in second]
    return reduce(torch.add, [_flat(first[name], lead) @ _flat(second[name], lead).mT for name in shared])


def row_vector_products(rows: Vector, v: Vector) -> Tensor:
    """`R v`: `[*lead, k]`."""
    shared = [name for name in rows.parts if name in v]
    if not shared:
        return rows.like.new_zeros(rows.replicas)
    found = [_flat(rows[name], rows.lead) @ _flat(v[name], v.lead).unsqueeze(-1) for name in shared]
    return reduce(torch.add, found).squeeze(-1)


def combine_rows(rows: Vector, c: Tensor) -> Vector:
    """`R^T c` of `c [*lead, k]`."""

    def combined(part: Tensor) -> Tensor:
        sums = (c.unsqueeze(-2) @ _flat(part, rows.lead)).squeeze(-2)
        return sums.reshape((*sums.shape[:-1], *part.shape[rows.lead :]))

    return Vector(rows.map(combined).parts, rows.lead - 1)


def mix_rows(mix: Tensor, rows: Vector) -> Vector:
    """`mix R`: rows `[*lead, n, p]` combined into `[*lead, k, p]` by `mix [*lead, k, n]`."""

    def mixed(part: Tensor) -> Tensor:
        found = mix.to(part.dtype) @ _flat(part, rows.lead)
        return found.reshape(*found.shape[:-1], *part.shape[rows.lead :])

    return rows.map(mixed)


def join_rows(first: Vector, second: Vector) -> Vector:
    """All rows of both; a parameter that one of them does not have is zero there."""
    axis = first.lead - 1

    def own(rows: Vector, other: Vector, name: str) -> Tensor:
        if name in rows:
            return rows[name]
        like = other[name]
        return like.new_zeros(*like.shape[:axis], rows.replicas[-1], *like.shape[axis + 1 :])

    names = {**first.parts, **second.parts}
    joined = {name: torch.cat([own(first, second, name), own(second, first, name)], axis) for name in names}
    return Vector(joined, first.lead)


def leading_rows(rows: Vector, rank: int) -> Vector:
    """The `U [*lead, rank, p]` with `U^T U` nearest to `R^T R`, and nowhere above it; filled up with zeros.

    Args:
        rows: `R [*lead, n, p]`.
        rank: how many to keep.
    """
    axis, count = rows.lead - 1, rows.replicas[-1]
    if count > rank:
        return mix_rows(leading_combinations(row_products(rows, rows), rank), rows)
    return rows.map(
        lambda part: torch.cat([part, part.new_zeros(*part.shape[:axis], rank - count, *part.shape[axis + 1 :])], axis)
    )


def leading_combinations(gram: Tensor, rank: int) -> Tensor:
    """The leading eigenvectors of a Gram matrix `[*lead, n, n]` as rows, `[*lead, rank, n]`, the largest first."""
    _, vectors = torch.linalg.eigh(gram.double())
    rows: Tensor = vectors[..., -rank:].flip(-1).mT
    return rows


def sum_of_squares(rows: Vector) -> Vector:
    """The diagonal of `R^T R`."""
    return Vector({name: part.square().sum(rows.lead - 1) for name, part in rows.parts.items()}, rows.lead - 1)


def rest_of(diagonal: Vector, rows: Vector) -> Vector:
    """What `U^T U` leaves of a diagonal: never below zero, but for rounding."""
    return (diagonal - sum_of_squares(rows)).map(lambda part: part.clamp(min=0))


def averaged(old: tuple[Vector, Vector], new: tuple[Vector, Vector], weight: float) -> tuple[Vector, Vector]:
    """`(1 - weight) old + weight new` of two such Fishers `(d, U)`, at the rank of one, its diagonal exact."""
    like = new[0].like
    share = torch.as_tensor(weight, dtype=like.dtype, device=like.device)
    both = join_rows(old[1] * (1 - share).sqrt(), new[1] * share.sqrt())
    rows = leading_rows(both, new[1].replicas[-1])
    diagonal = old[0] * (1 - share) + new[0] * share + sum_of_squares(both)
    return rest_of(diagonal, rows), rows
