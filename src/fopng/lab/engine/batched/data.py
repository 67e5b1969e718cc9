"""The samples of R runs on one device: as steps, evaluations and estimates read them."""

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
from fopng.lab.data.splits import Split
from fopng.lab.engine.batched.model import NotStackable
from fopng.lab.engine.stages import in_precision

T = TypeVar("T")


@final
class StackedSamples:
    """One split of every run: `x [R or 1, N, ...]` and `y [R or 1, N]`.

    Args:
        splits: one per run, all of one length.
        device: where the samples live.
        dtype: of inputs that are not whole numbers.
    """

    def __init__(self, splits: Sequence[Split], device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        if len({len(split) for split in splits}) > 1:
            raise NotStackable(f"Expected tasks of one size for runs side by side, got {[len(s) for s in splits]}.")
        pairs = [split.tensors(device) for split in (splits[:1] if are_shared(splits) else splits)]
        self.x = in_precision(torch.stack([x for x, _ in pairs]), dtype)
        self.y = torch.stack([y for _, y in pairs])
        self.replicas = len(splits)
        self._own = torch.arange(self.x.shape[0], device=device)[:, None]

    def __len__(self) -> int:
        return self.x.shape[1]

    def rows(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Samples by number, `[R, n] -> [R, n, ...]`, each replica its own."""
        if self.x.shape[0] == 1:
            return self.x[0][index], self.y[0][index]
        return self.x[self._own, index], self.y[self._own, index]

    def chunks(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All samples in order, `[R, n, ...]`."""
        for start in range(0, len(self), size):
            x, y = self.x[:, start : start + size], self.y[:, start : start + size]
            yield x.expand(self.replicas, *x.shape[1:]), y.expand(self.replicas, *y.shape[1:])


def are_shared(splits: Sequence[Split]) -> bool:
    """Whether all runs see the same samples in the same order."""
    return all(splits[0].same_samples(split) for split in splits[1:])


@final
class StackedStream(SampleStream):
    """The samples of R runs, drawn as each run would draw them alone.

    Args:
        samples: the training samples.
        task: the number of the task, for the model.
        weights: the parameters now, `[R, *shape]`.
        generators: one per run; each draws what the run would draw alone.
        alive: which runs still have finite numbers, `[R]`; a run whose Fisher or gradients are not finite is marked here, and
            they become zeros.
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
