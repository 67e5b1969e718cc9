"""What a method may ask about the task at hand, for R runs at once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import final

import torch
from torch import Tensor

from fopng.core.batch import Batch
from fopng.core.likelihood import Labels, Norm, Score, Signals
from fopng.curvature.estimate import check_full_size, chunk_size
from fopng.curvature.kronecker import LayerBasis, SquareSums
from fopng.curvature.low_rank import LowRankSums
from fopng.curvature.moments import InputSums, Moments, MomentSums, clear
from fopng.gradients.backward import Names
from fopng.gradients.layers import SampleGradients
from fopng.gradients.per_sample import GradientSource
from fopng.lab.engine.batched.samples import StackedSamples
from fopng.lab.engine.batched.sampling import StackedTaskSamples


@final
@dataclass(frozen=True)
class ReplicaTask:
    """A task of R runs: their parameters, their samples, and a generator each.

    Args:
        source: the model.
        theta: the parameters now, `[R, p]`.
        samples: the training samples.
        task: the number of the task, for the model.
        generators: one a run; each draws what the run would draw alone.
        steps: how many each run has taken when the task ends.
        alive: which runs still go on, `[R]`; one whose Fisher or gradients are not finite is struck out here, and has harmless
            numbers in their place.
        memory_limit: bytes that an estimate holds at a time; None for `held_at_most`.
    """

    source: GradientSource
    theta: Tensor
    samples: StackedSamples
    task: int
    generators: Sequence[torch.Generator]
    steps: int
    alive: Tensor
    memory_limit: int | None = None

    def parameters(self) -> Tensor:
        """The parameters now, `[R, p]`."""
        return self.theta.clone()

    def move(self, theta: Tensor) -> None:
        """Put the parameters of the runs that go on there, `[R, p]`."""
        self.theta.copy_(torch.where(self.alive.unsqueeze(-1), theta, self.theta))

    def fisher(self, labels: Labels, samples: int | None) -> Tensor:
        """The diagonal Fisher of each run now, `[R, p]`."""
        return self._mean(labels, samples, SampleGradients.add_squares)

    @property
    def sampling(self) -> StackedTaskSamples:
        """The samples of each run."""
        measure = partial(self._mean, "squared-norm", add=SampleGradients.add_absolute)
        return StackedTaskSamples(self.source, self.theta, self.samples, self.task, self.generators, measure)

    def _mean(self, kind: Labels | Norm, samples: int | None, add: Callable[[SampleGradients, Tensor], None]) -> Tensor:
        """The mean over samples of what `add` adds up, `[R, p]`."""
        total, count = torch.zeros_like(self.theta), 0
        for batch in self._batches(samples):
            for gradients in self.source.gradients(batch, kind, parameters=self.theta, generator=self.generators):
                add(gradients, total)
            count += batch[0].shape[1]
        mean = total / count
        finite = mean.isfinite().all(-1)
        self.alive.logical_and_(finite)
        return torch.where(finite.unsqueeze(-1), mean, 1.0)

    def gradients(self, count: int, score: Score) -> list[SampleGradients]:
        """Gradients of a score of `count` samples of each run, now."""
        found = []
        for batch in self._batches(min(count, len(self.samples)), whole=True):
            found += list(self.source.gradients(batch, score, parameters=self.theta))
        finite = torch.stack([_finite(block) for block in found]).all(0)
        self.alive.logical_and_(finite)
        return [block.cleared(finite) for block in found]

    def input_moments(self, samples: int | None) -> dict[Names, Tensor]:
        """`A [R, i, i]` of what each Linear and Conv layer of each run is given, now."""
        sums = InputSums(self.source, self.theta)
        for batch in self._batches(samples):
            sums.add(batch)
        means = sums.mean()
        finite = torch.ones_like(self.alive)
        for mean in means.values():
            finite &= mean.isfinite().flatten(1).all(-1)
        self.alive.logical_and_(finite)
        return {names: clear(mean, finite) for names, mean in means.items()}

    def moments(self, signals: Signals, samples: int | None) -> Moments:
        """Both second moments of each layer of each run now, and a diagonal for everything else."""
        sums = MomentSums(self.source, signals, parameters=self.theta, generator=self.generators)
        for batch in self._batches(samples):
            sums.add(batch)
        moments = sums.mean()
        finite = moments.finite()
        self.alive.logical_and_(finite)
        return moments.cleared(finite)

    def turned_squares(
        self, bases: Mapping[Names, LayerBasis], labels: Labels, samples: int | None
    ) -> dict[Names, Tensor]:
        """Mean squared gradients along the eigenvectors of each layer of each run now, `[R, o, i]`."""
        sums = SquareSums(self.source, labels, bases, parameters=self.theta, generator=self.generators)
        for batch in self._batches(samples):
            sums.add(batch)
        found = sums.mean()
        finite = torch.ones_like(self.alive)
        for squares in found.values():
            finite &= squares.isfinite().flatten(1).all(-1)
        self.alive.logical_and_(finite)
        return {names: clear(squares, finite) for names, squares in found.items()}

    def full_fisher(self, labels: Labels, samples: int | None) -> Tensor:
        """The whole Fisher of each run now, `[R, p, p]`."""
        check_full_size(self.theta.shape[-1], self.theta.shape[:-1], self.theta.device, self.memory_limit)
        total, count = torch.zeros(()), 0
        for batch in self._batches(samples):
            for gradients in self.source.gradients(batch, labels, parameters=self.theta, generator=self.generators):
                rows = gradients.dense()
                total = total.to(rows) + rows.mT @ rows
            count += batch[0].shape[1]
        fisher = total / count
        finite = fisher.isfinite().flatten(1).all(-1)
        self.alive.logical_and_(finite)
        return clear(fisher, finite)

    def low_rank_fisher(self, labels: Labels, samples: int | None, rank: int) -> tuple[Tensor, Tensor]:
        """The Fisher of each run now as a diagonal `[R, p]` and its leading rows `[R, rank, p]`."""
        sums = LowRankSums(self.source, labels, rank, parameters=self.theta, generator=self.generators)
        for batch in self._batches(samples, size=rank):
            sums.add(batch)
        diagonal, rows = sums.mean()
        finite = diagonal.isfinite().all(-1) & rows.isfinite().flatten(1).all(-1)
        self.alive.logical_and_(finite)
        return torch.where(finite.unsqueeze(-1), diagonal, 1.0), clear(rows, finite)

    def _batches(self, samples: int | None, *, whole: bool = False, size: int | None = None) -> Iterator[Batch]:
        """The samples to use, `(x, y, task)`, drawn as a run alone would draw them, in chunks that fit."""
        n = len(self.samples) if samples is None else min(samples, len(self.samples))
        if size is None:
            size = n if whole else self._fitting()
        if samples is None:
            yield from ((x, y, self.task) for x, y in self.samples.chunks(size))
            return
        orders = [torch.randperm(len(self.samples), generator=g)[:n].sort().values for g in self.generators]
        for index in torch.stack(orders).to(self.theta.device).split(size, dim=1):
            yield (*self.samples.rows(index), self.task)

    def _fitting(self) -> int:
        """How many samples of each run to work on at a time."""
        firsts = torch.zeros(len(self.generators), 1, dtype=torch.int64, device=self.theta.device)
        held = self.source.bytes_per_sample((*self.samples.rows(firsts), self.task), self.theta)
        return chunk_size(held, self.theta.device, self.memory_limit)


def _finite(block: SampleGradients) -> Tensor:
    """Whether all numbers of a replica's gradients are finite, `[R]`."""
    tensors = [tensor for layer in block.layers.values() for tensor in layer.tensors().values()]
    return torch.stack([tensor.isfinite().flatten(1).all(-1) for tensor in tensors]).all(0)
