"""A Fisher of low rank plus a diagonal: `F = diag(d) + U^T U`, the leading directions whole, the rest by its diagonal."""

from collections.abc import Iterable
from typing import final

import torch
from torch import Tensor

from fopng.core.batch import Batch, NotFinite, regroup_exactly, sample_count
from fopng.core.likelihood import Generators, Labels, draws_labels
from fopng.curvature.estimate import check_rewindable, flat_zeros
from fopng.curvature.metric import Metric
from fopng.gradients.directions import Basis
from fopng.gradients.layers import SampleGradients
from fopng.gradients.per_sample import GradientSource
from fopng.gradients.sharded_gram import spread_gram
from fopng.parallel.collectives import ALONE, Peers
from fopng.parallel.sharded_sampling import Deal


@final
class LowRankPlusDiagonal(Metric):
    """A metric `diag(values) + U^T U + damping I`, inverted by Woodbury's identity.

    Args:
        values: the diagonal, `[..., p]`.
        rows: `U [..., k, p]`; rows of zeros are none.
        damping: lambda, added to the diagonal; a number, or one a replica `[...]`.

    >>> metric = LowRankPlusDiagonal(torch.zeros(2), torch.tensor([[1.0, 1.0]]), damping=1.0)
    >>> metric.solve(torch.tensor([3.0, 0.0]))
    tensor([ 2., -1.])
    """

    def __init__(self, values: Tensor, rows: Tensor, *, damping: float | Tensor) -> None:
        added = damping.unsqueeze(-1) if isinstance(damping, Tensor) else damping
        self.values, self.rows = values + added, rows
        smallest, largest = self.values.aminmax()
        if not bool((smallest > 0) & (largest < torch.inf) & rows.isfinite().all()):
            raise ValueError(
                f"Expected a positive definite metric, got a diagonal from {float(smallest):.3g} to {float(largest):.3g} "
                f"(damping={damping}). Raise damping; if they are not finite, the Fisher was estimated at parameters that are not."
            )
        self.inverse = self.values.reciprocal()
        self._scaled = rows * self.inverse.unsqueeze(-2)
        inner = (self._scaled @ rows.mT).double()
        # I + U D^-1 U^T, never singular: its eigenvalues are 1 at the least
        self._factor = torch.linalg.cholesky(inner + torch.eye(inner.shape[-1], dtype=inner.dtype, device=inner.device))

    def matvec(self, v: Tensor) -> Tensor:
        return product(self.values, self.rows, v)

    def solve(self, v: Tensor) -> Tensor:
        c = torch.cholesky_solve(_seen(self._scaled, v).double().unsqueeze(-1), self._factor).squeeze(-1)
        return torch.addcmul(-_combined(self._scaled, c.to(v.dtype)), v, self.inverse)

    def inverse_gram(self, basis: Basis) -> Tensor:
        # B^T D^-1 B - W^T (I + U D^-1 U^T)^-1 W with W = U D^-1 B
        W = torch.stack([basis.rmatvec(row) for row in self._scaled.unbind(-2)], -2).double()
        half: Tensor = torch.linalg.solve_triangular(self._factor, W, upper=False)
        return basis.gram(self.inverse) - half.mT @ half


def product(values: Tensor, rows: Tensor, v: Tensor) -> Tensor:
    """`(diag(values) + U^T U) v`: `[..., p] -> [..., p]`."""
    return v * values + _combined(rows, _seen(rows, v))


def _seen(rows: Tensor, v: Tensor) -> Tensor:
    """`U v`: `[..., p] -> [..., k]`."""
    return (rows @ v.unsqueeze(-1)).squeeze(-1)


def _combined(rows: Tensor, c: Tensor) -> Tensor:
    """`U^T c`: `[..., k] -> [..., p]`."""
    return (c.unsqueeze(-2) @ rows).squeeze(-2)


def leading_rows(rows: Tensor, rank: int) -> Tensor:
    """The `U [..., rank, p]` with `U^T U` nearest to `R^T R`, and nowhere above it; filled up with zeros.

    Args:
        rows: `R [..., n, p]`.
        rank: how many to keep.
    """
    if rows.shape[-2] > rank:
        _, vectors = torch.linalg.eigh((rows @ rows.mT).double())
        kept: Tensor = vectors[..., -rank:].flip(-1).mT.to(rows.dtype) @ rows
        return kept
    missing = rows.new_zeros(*rows.shape[:-2], rank - rows.shape[-2], rows.shape[-1])
    return torch.cat([rows, missing], -2)


@final
class LowRankSums:
    """`d` and `U` of gradients that come a few at a time: leading directions kept, what falls off them left to the diagonal.

    The diagonal of the result is that of the Fisher, exactly. What is kept depends on how many samples come at a time: give `rank`
    of them each time.

    Args:
        source: the model.
        labels: which labels the Fisher uses.
        rank: how many directions are kept.
        parameters: `[*lead, p]` instead of the model's own, for replicas; the batches then are `[*lead, n, ...]`.
        generator: draws labels; one for all, or one for each replica.
    """

    def __init__(
        self,
        source: GradientSource,
        labels: Labels,
        rank: int,
        *,
        parameters: Tensor | None = None,
        generator: Generators = None,
    ) -> None:
        self._source, self._labels, self._rank = source, labels, rank
        self._parameters, self._generator = parameters, generator
        self._rows: Tensor | None = None
        self._squares: Tensor | None = None
        self._count = 0

    def add(self, batch: Batch) -> None:
        """Add the samples of a batch."""
        found = self._source.gradients(batch, self._labels, parameters=self._parameters, generator=self._generator)
        for gradients in found:
            self._add(gradients)
        self._count += sample_count(batch, 0 if self._parameters is None else self._parameters.dim() - 1)

    def _add(self, gradients: SampleGradients) -> None:
        rows = gradients.dense()
        squares = rows.square().sum(-2)
        self._squares = squares if self._squares is None else self._squares + squares
        self._rows = leading_rows(rows if self._rows is None else torch.cat([self._rows, rows], -2), self._rank)

    def shared(self, peers: Peers) -> None:
        """Add up what several processes have found; the leading directions of all of theirs are kept."""
        if peers.count == 1:
            return
        nothing = flat_zeros(self._source, None)
        squares = nothing if self._squares is None else self._squares
        rows = nothing.new_zeros(self._rank, len(nothing)) if self._rows is None else self._rows
        owned = [range(k * self._rank, (k + 1) * self._rank) for k in range(peers.count)]
        _, vectors = torch.linalg.eigh(spread_gram(lambda part: rows[:, part], len(nothing), owned, peers))
        own = vectors[list(owned[peers.number]), -self._rank :].flip(-1).mT.to(rows.dtype)
        self._rows, self._squares = peers.sum(own @ rows), peers.sum(squares)
        self._count = peers.total(self._count)

    def mean(self) -> tuple[Tensor, Tensor]:
        """`d [..., p]` and `U [..., rank, p]` of the mean over samples."""
        if self._rows is None or self._squares is None or not self._count:
            raise ValueError("Expected at least one sample to estimate a Fisher from, got none.")
        rows = self._rows / self._count**0.5
        return rest_of(self._squares / self._count, rows), rows


def rest_of(diagonal: Tensor, rows: Tensor) -> Tensor:
    """What `U^T U` leaves of a diagonal, `[..., p]`: never below zero, but for rounding."""
    return (diagonal - rows.square().sum(-2)).clamp(min=0)


def averaged(old: tuple[Tensor, Tensor], new: tuple[Tensor, Tensor], weight: float | Tensor) -> tuple[Tensor, Tensor]:
    """`(1 - weight) old + weight new` of two such Fishers `(d, U)`, at the rank of one, its diagonal exact.

    Args:
        old: one of them.
        new: the other.
        weight: from 0 to 1; a number, or one a replica `[...]`.
    """
    share = torch.as_tensor(weight, dtype=new[0].dtype, device=new[0].device).unsqueeze(-1)
    both = torch.cat([(1 - share).sqrt().unsqueeze(-1) * old[1], share.sqrt().unsqueeze(-1) * new[1]], -2)
    rows = leading_rows(both, new[1].shape[-2])
    diagonal = (1 - share) * old[0] + share * new[0] + both.square().sum(-2)
    return rest_of(diagonal, rows), rows


def low_rank_fisher(
    source: GradientSource,
    batches: Iterable[Batch],
    rank: int,
    *,
    labels: Labels = "observed",
    samples: int | None = None,
    generator: torch.Generator | None = None,
    peers: Peers = ALONE,
) -> tuple[Tensor, Tensor]:
    """`d [p]` and `U [rank, p]` of a model's Fisher on data.

    Args:
        source: the model.
        batches: the data; walked more than once.
        rank: how many directions are kept.
        labels: the data's labels, labels drawn from the model, or the exact expectation over labels.
        samples: how many samples to use, drawn without replacement; None for all.
        generator: draws the samples, and labels that are "sampled".
        peers: the processes that have a shard of the data each: each keeps the leading directions of its own, then all of all.
    """
    check_rewindable(batches)
    deal = Deal(generator, peers, labels=draws_labels(labels))
    sums = LowRankSums(source, labels, rank, generator=deal)
    for batch in regroup_exactly(deal.choose(batches, samples, 0), rank):
        sums.add(batch)
    deal.settle()
    sums.shared(peers)
    diagonal, rows = sums.mean()
    broken = source.layout.name_nonfinite(diagonal + rows.sum(0))
    if broken:
        raise NotFinite(f"Expected a finite Fisher, got NaN or infinity in {broken}. Has the training diverged?")
    return diagonal, rows
