"""The accuracy of a model on the samples of a task."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fopng.data.splits import Split
from fopng.train.seeds import Seeds
from fopng.train.stages import whole_split


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
