"""The accuracy of a model on the samples of its tasks."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor, nn

from fopng.lab.benchmarks.stream import TaskStream
from fopng.lab.data.splits import Split
from fopng.lab.engine.plan import Row
from fopng.lab.engine.seeds import Seeds
from fopng.lab.engine.stages import whole_split


@torch.no_grad()
def accuracy(model: nn.Module, split: Split, task: int, seeds: Seeds, device: torch.device) -> float:
    """The share of a split's samples that the model gets right, told which task they are of."""
    right = torch.zeros((), dtype=torch.int64, device=device)
    dtype = next(model.parameters()).dtype
    with evaluating(model):
        for x, y in whole_split(split, seeds, device):
            logits: Tensor = model(x.to(dtype), task=task)
            right += (logits.argmax(-1) == y).sum()
    return int(right) / len(split)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, and every module's own mode back afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@final
@dataclass(frozen=True)
class Examiner:
    """Measures a model on the tasks of a stream."""

    model: nn.Module
    stream: TaskStream
    seeds: Seeds
    device: torch.device

    def row(self, tasks: Iterable[int], part: Literal["test", "validation"]) -> Row:
        """The accuracies on some tasks; None for the others."""
        row: list[float | None] = [None] * len(self.stream)
        for task in tasks:
            split = self.stream[task].test if part == "test" else self.stream[task].validation
            assert split is not None
            row[task] = accuracy(self.model, split, task, self.seeds, self.device)
        return tuple(row)
