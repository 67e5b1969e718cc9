"""The data of a task of R runs, as estimates walk over it."""

from collections.abc import Iterator, Sequence
from typing import TypeVar, final

import torch
from torch import Tensor

from fopng.core.batch import Batch
from fopng.core.likelihood import Generators
from fopng.core.tree import map_tree, tensors_in
from fopng.core.vector import Vector
from fopng.curvature.sampling import SampleStream, chunk_size
from fopng.gradients.per_sample import PerSampleGradients
from fopng.lab.engine.batched.samples import StackedSamples

T = TypeVar("T")


@final
class StackedStream(SampleStream):
    """The samples of R runs, drawn as each run would draw them alone.

    Args:
        samples: the training samples.
        task: the number of the task, for the model.
        weights: the parameters now, `[R, *shape]`.
        generators: one for each run; each draws what the run would draw alone.
        alive: which runs still go on, `[R]`; one whose Fisher or gradients are not finite is struck out here, and has zeros in
            their place.
        memory_limit: bytes that an estimate holds at a time; None for `held_at_most`.
    """

    def __init__(
        self,
        samples: StackedSamples,
        task: int,
        weights: Vector,
        generators: Sequence[torch.Generator],
        alive: Tensor,
        memory_limit: int | None = None,
    ) -> None:
        self.samples, self.task, self.parameters = samples, task, weights
        self.generators, self.alive, self.memory_limit = generators, alive, memory_limit

    @property
    def generator(self) -> Generators:
        return self.generators

    def chunks(
        self, source: PerSampleGradients, samples: int | None, *, labels: bool, size: int | None = None
    ) -> Iterator[Batch]:
        size = self._fitting(source) if size is None else size
        if samples is None:
            yield from ((x, y, self.task) for x, y in self.samples.chunks(size))
        else:
            yield from self._drawn(samples, size)

    def chosen(self, source: PerSampleGradients, count: int) -> Iterator[Batch]:
        yield from self._drawn(count, count)

    def _drawn(self, count: int, size: int) -> Iterator[Batch]:
        orders = [torch.randperm(len(self.samples), generator=g)[:count].sort().values for g in self.generators]
        for index in torch.stack(orders).to(self.alive.device).split(size, dim=1):
            yield (*self.samples.rows(index), self.task)

    def _fitting(self, source: PerSampleGradients) -> int:
        """How many samples of each run to work on at a time."""
        firsts = torch.zeros(len(self.generators), 1, dtype=torch.int64, device=self.alive.device)
        held = source.bytes_per_sample((*self.samples.rows(firsts), self.task), self.parameters)
        return chunk_size(held, self.alive.device, self.memory_limit)

    def checked(self, tree: T, what: str) -> T:
        finite = torch.stack([tensor.isfinite().reshape(len(tensor), -1).all(-1) for tensor in tensors_in(tree)]).all(0)
        self.alive.logical_and_(finite)
        return map_tree(lambda t: torch.where(finite.reshape(-1, *[1] * (t.dim() - 1)), t, 0), tree)

    def allowed(self, new: Vector, old: Vector) -> Vector:
        return new.where(self.alive, old)
