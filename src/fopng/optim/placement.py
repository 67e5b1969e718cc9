"""Where a state is: moved with the model, gathered from the processes that share a run, and dealt out again."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from fopng.core.tree import as_kind, map_children
from fopng.memory.gaussians import GaussianInputs
from fopng.memory.probe import KeptInputs, TaskProbe
from fopng.memory.replay_samples import SampleMemory, dealt_memory, follow_model, whole_memory
from fopng.optim.method import State
from fopng.parallel.collectives import Communicator

T = TypeVar("T")


def moved(tree: T, blank: Tensor, before: Tensor, after: Tensor) -> T:
    """Bring a state to a device and a precision; samples follow the model's parameters.

    Args:
        tree: the state.
        blank: a tensor of the kind that the method calculates in.
        before: one of the kind that the model's parameters had when samples were kept.
        after: one of its parameters now.
    """
    if isinstance(tree, (SampleMemory, KeptInputs)):
        return follow_model(tree, before, after)
    if isinstance(tree, GaussianInputs):
        return replace(as_kind(tree, blank), form=follow_model(tree.form, before, after))
    if isinstance(tree, (tuple, State, TaskProbe)):
        return map_children(lambda own: moved(own, blank, before, after), tree)
    return as_kind(tree, blank)


def _holds_samples(tree: Any) -> bool:
    return isinstance(getattr(tree, "samples", None), SampleMemory)


def whole(state: T, communicator: Communicator, model: torch.device) -> T:
    """A state as one process would save it."""
    return _with_samples(state, lambda own: whole_memory(own, communicator, model))


def shared(state: T, communicator: Communicator, model: torch.device) -> T:
    """The part of a saved state that this process keeps."""
    return _with_samples(state, lambda own: dealt_memory(own, communicator, model))


def _with_samples(state: T, change: Callable[[SampleMemory], SampleMemory]) -> T:
    if not _holds_samples(state):
        return state
    return map_children(lambda own: change(own) if isinstance(own, SampleMemory) else own, state)
