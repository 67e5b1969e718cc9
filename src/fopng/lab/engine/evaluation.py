"""The accuracy of a model on the samples of its tasks."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fopng.lab.benchmarks.stream import TaskStream
from fopng.lab.data.splits import Split
from fopng.lab.engine.seeds import Seeds
from fopng.lab.engine.stages import in_precision, whole_split


@torch.no_grad()
def accuracy(model: nn.Module, split: Split, task: int, seeds: Seeds, device: torch.device) -> float:
    """The share of a split's samples that the model answers rightly, with the head of their task."""
    right = torch.zeros((), dtype=torch.int64, device=device)
    dtype = next(model.parameters()).dtype
    with evaluating(model):
        for x, y in whole_split(split, seeds, device):
            logits: Tensor = model(in_precision(x, dtype), task=task)
            right += (logits.argmax(-1) == y).sum()
    return int(right) / len(split)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode; afterwards every module is back in its own."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def split_of(stream: TaskStream, task: int, part: str) -> Split:
    """A task's samples to measure on: `test` or `validation`."""
    split = stream[task].test if part == "test" else stream[task].validation
    assert split is not None
    return split
