"""A stage: the tasks that are learnt together (mostly one), and their batches in an order that the seed alone decides."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from fopng.core.batch import Batch, PredictTask, TaskName
from fopng.lab.benchmarks.stream import TaskStream
from fopng.lab.data.splits import ArraySplit, Batches, Device, Split
from fopng.lab.engine.randomness import drawn_from
from fopng.lab.engine.seeds import Seeds

WHOLE_BATCH = 1000
"""Samples in a batch where no step is taken: estimates and evaluation."""


@final
class _PredictTask(PredictTask):
    """Answers a batch (x, y, task) with the head of its task: a number, or a tensor of the same number for each sample."""

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        x, y, _ = batch
        return model(x, task=self.task_of(batch)), y

    def task_of(self, batch: Batch) -> int:
        task = batch[2]
        return int(task[0]) if isinstance(task, Tensor) else task

    def as_task(self, batch: Batch, task: TaskName) -> Batch:
        return batch[0], batch[1], task


predict_task = _PredictTask()
"""How the models of all benchmarks answer."""


def one_by_one(stream: TaskStream) -> tuple[tuple[int, ...], ...]:
    """A stage for each task: continual learning."""
    return tuple((task,) for task in range(len(stream)))


def all_at_once(stream: TaskStream) -> tuple[tuple[int, ...], ...]:
    """One stage of all tasks: joint training, the reference that forgets nothing."""
    return (tuple(range(len(stream))),)


@final
@dataclass(frozen=True)
class Stage:
    """The tasks that are learnt together, and their batches."""

    number: int
    tasks: tuple[int, ...]
    stream: TaskStream
    batch_size: int
    seeds: Seeds
    device: torch.device
    dtype: torch.dtype = torch.float32
    """Of the inputs."""

    @property
    def steps(self) -> int:
        """Steps in an epoch."""
        return sum(self._steps_of(task) for task in self.tasks)

    def epoch(self, epoch: int, start: int) -> Iterator[tuple[int, Tensor, Tensor]]:
        """(task, x, y) of the steps of an epoch, from one of them on. Each batch is of one task."""
        heads = self._heads(epoch)
        walks = {task: self._walk(task, epoch, heads[:start].count(task)) for task in self.tasks}
        for task in heads[start:]:
            x, y = next(walks[task])
            yield task, in_precision(x, self.dtype), y

    def whole(self) -> Iterable[Batch]:
        """Every sample once, in batches (x, y, task) that can be walked again.

        The task is a tensor, the same number for each sample, where there is but one: then small batches can be joined.
        """
        return _Whole(self)

    def _heads(self, epoch: int) -> list[int]:
        """The task of each step."""
        heads = [task for task in self.tasks for _ in range(self._steps_of(task))]
        if len(self.tasks) == 1:
            return heads
        generator = torch.Generator().manual_seed(self.seeds.interleaving(self.number, epoch))
        return [heads[index] for index in torch.randperm(len(heads), generator=generator).tolist()]

    def order(self, epoch: int, task: int) -> Tensor:
        """The order of a task's samples in an epoch, int64 [n]."""
        return self.stream[task].train.order(self._generator(epoch, task))

    def _generator(self, epoch: int, task: int) -> torch.Generator:
        return torch.Generator().manual_seed(self.seeds.order(self.number, epoch, task))

    def _walk(self, task: int, epoch: int, start: int) -> Iterator[tuple[Tensor, Tensor]]:
        generator = self._generator(epoch, task)
        split = steady(self.stream[task].train, self.seeds, self.number, epoch, task)
        return split.batches(self.batch_size, generator=generator, device=self.device).walk(start)

    def _steps_of(self, task: int) -> int:
        return -(-len(self.stream[task].train) // self.batch_size)


@final
class _Whole:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def __iter__(self) -> Iterator[Batch]:
        stage = self._stage
        for task in stage.tasks:
            for x, y in whole_split(stage.stream[task].train, stage.seeds, stage.device):
                yield in_precision(x, stage.dtype), y, torch.full((len(y),), task) if len(stage.tasks) == 1 else task


def in_precision(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Inputs in a precision; whole numbers, such as tokens, stay what they are."""
    return x.to(dtype) if x.is_floating_point() else x


def whole_split(split: Split, seeds: Seeds, device: torch.device) -> Batches:
    """A split in order, in large batches."""
    return steady(split, seeds).batches(WHOLE_BATCH, device=device)


def steady(split: Split, seeds: Seeds, *place: int) -> Split:
    """The split with samples that depend on the seed alone, also where its dataset draws them at random."""
    return split if isinstance(split, ArraySplit) else SteadySplit(split, seeds, place)


@final
class SteadySplit(Split):
    """Another split whose reading draws from a seed of its own: a resumed run sees the samples of one that was not.

    Args:
        split: where the samples come from.
        seeds: of the run.
        place: numbers that tell one reading of the same rows from another, such as the epoch.
    """

    def __init__(self, split: Split, seeds: Seeds, place: tuple[int, ...]) -> None:
        self._split, self._seeds, self._place = split, seeds, place

    def __len__(self) -> int:
        return len(self._split)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return self._split.input_shape

    @property
    def targets(self) -> Tensor:
        """All targets, int64 [n]."""
        return self._split.targets

    def read(self, rows: Tensor, device: Device = None) -> tuple[Tensor, Tensor]:
        """(x, y) of these rows, int64 [b], on a device."""
        seed = self._seeds.samples(*self._place, int(rows[0]), len(rows))
        with drawn_from(seed, torch.device("cpu")):
            return self._split.read(rows, device)
