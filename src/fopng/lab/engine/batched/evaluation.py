"""The accuracies of R runs on the samples of their tasks."""

from collections.abc import Iterable, Sequence
from typing import Literal, final

import torch
from torch import Tensor

from fopng.curvature.sampling import chunk_size
from fopng.lab.benchmarks.stream import TaskStream
from fopng.lab.data.splits import Split
from fopng.lab.engine.batched.samples import StackedSamples
from fopng.lab.engine.batched.stacking import StackedModel
from fopng.lab.engine.evaluation import evaluating
from fopng.lab.engine.plan import Row

Part = Literal["test", "validation"]


@final
class StackedTests:
    """What runs are measured on, kept on the device.

    Args:
        model: the weights.
        streams: the tasks, one stream a run.
        sample_bytes: what an estimate on one sample of one run takes.
        memory_limit: bytes to hold at a time.
    """

    def __init__(
        self, model: StackedModel, streams: Sequence[TaskStream], sample_bytes: int, memory_limit: int
    ) -> None:
        self._model, self._streams = model, streams
        # Answers alone hold about a quarter of what answers and gradients hold.
        self._size = chunk_size(max(1, sample_bytes * model.count // 4), model.theta.device, memory_limit)
        self._held: dict[tuple[Part, int], StackedSamples] = {}

    def rows(self, tasks: Iterable[int], part: Part) -> list[Row]:
        """A row of accuracies for each run: on these tasks, None on the others."""
        rows: list[list[float | None]] = [[None] * len(stream) for stream in self._streams]
        with evaluating(self._model.template):
            for task in tasks:
                for row, accuracy in zip(rows, self._accuracies(task, part).tolist(), strict=True):
                    row[task] = accuracy
        return [tuple(row) for row in rows]

    def _accuracies(self, task: int, part: Part) -> Tensor:
        samples = self._samples(task, part)
        right = torch.zeros(self._model.count, dtype=torch.int64, device=self._model.theta.device)
        for x, y in samples.chunks(self._size):
            right += (self._model.logits(x, task).argmax(-1) == y).sum(-1)
        return right.double() / len(samples)

    def _samples(self, task: int, part: Part) -> StackedSamples:
        if (part, task) not in self._held:
            splits = [split_of(stream, task, part) for stream in self._streams]
            theta = self._model.theta
            self._held[part, task] = StackedSamples(splits, theta.device, theta.dtype)
        return self._held[part, task]


def split_of(stream: TaskStream, task: int, part: Part) -> Split:
    """A task's samples to measure on."""
    split = stream[task].test if part == "test" else stream[task].validation
    assert split is not None
    return split
