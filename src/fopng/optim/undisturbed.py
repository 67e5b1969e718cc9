"""Estimates that leave no trace: random states are put back, autocast is off."""

import random
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


@contextmanager
def preserve_rng(parameters: Iterable[Tensor]) -> Iterator[None]:
    """Leave the global random states as they were, although a loader may shuffle and a dataset augment.

    Args:
        parameters: those of the model, for the devices they are on.
    """
    devices = {p.device.index for p in parameters if p.device.type == "cuda"}
    python, legacy = random.getstate(), numpy.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            random.setstate(python)
            numpy.random.set_state(legacy)  # noqa: NPY002


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


def no_autocast(like: Tensor) -> AbstractContextManager[object]:
    """Switch autocast off on a tensor's device: it would round the method's own arithmetic to half precision."""
    kind = like.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


@contextmanager
def still_statistics(model: nn.Module) -> Iterator[None]:
    """Let batch normalisation use its running statistics, and leave them as they are; all else is in the mode that it was in."""
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm) and module.training]
    for module in norms:
        module.training = module.running_mean is None
    try:
        yield
    finally:
        for module in norms:
            module.training = True
