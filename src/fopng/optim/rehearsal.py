"""Rehearsing: gradients on samples of the method's own in the middle of a step."""

import warnings
from collections.abc import Collection, Sequence, Set
from functools import reduce
from typing import final

import torch
from torch import Tensor, nn

from fopng.core.batch import sample_count
from fopng.gradients.per_sample import GradientSource
from fopng.memory.replay_samples import Drawn, Rehearser
from fopng.parallel.collectives import ALONE, Peers


class HeadChanged(UserWarning):
    """Samples of an old task are answered through another head than when it was learnt."""


@final
class ModelRehearser:
    """A drop-in optimizer's model, in the mode that it is trained in: old samples are learnt as new ones are, dropout included.

    Args:
        source: the model.
        parameters: those of its layout, in order.
        peers: the processes that rehearse with it, each on samples of its own.

    Attributes:
        reached: the names of the parameters that had a gradient.
    """

    def __init__(self, source: GradientSource, parameters: Sequence[nn.Parameter], peers: Peers = ALONE) -> None:
        self._source, self._parameters, self._peers = source, parameters, peers
        self.reached: set[str] = set()

    def gradient(self, drawn: Drawn) -> Tensor:
        """The gradient of the loss on these samples, `[p]`."""
        return self.gradients([drawn]).squeeze(0)

    def gradients(self, drawn: Sequence[Drawn]) -> Tensor:
        """The gradient on each of these draws, `[k, p]`, one after another."""
        layout, dtype = self._source.layout, reduce(torch.promote_types, {p.dtype for p in self._parameters})
        found = torch.empty(len(drawn), layout.size, device=self._parameters[0].device, dtype=_wide(dtype))
        for each, row in zip(drawn, found, strict=True):
            if named := self._named(each):
                layout.join(named, out=row)
            else:
                row.zero_()
        return found

    def _named(self, drawn: Drawn) -> dict[str, Tensor]:
        """The gradient on these samples, of the parameters that they reach."""
        if not sample_count(drawn.batch):
            # others have been drawn, in other processes
            return {}
        named = zip(self._source.layout.names, self._parameters, strict=True)
        trained = {name: parameter for name, parameter in named if parameter.requires_grad}
        with torch.enable_grad():
            outputs, targets = self._source.predict(self._source.model, drawn.batch)
        found: Sequence[Tensor | None] = [None] * len(trained)
        if outputs.requires_grad:
            signal = drawn.signal(self._source.likelihood, outputs.detach(), targets)
            found = torch.autograd.grad(outputs, list(trained.values()), signal, allow_unused=True)
        reached = {name: g for name, g in zip(trained, found, strict=True) if g is not None}
        self.reached |= reached.keys()
        _warn_of_another_head(drawn.path, trained.keys(), reached.keys())
        return {name: g.to_dense() if g.is_sparse else g for name, g in reached.items()}

    def together(self, g: Tensor) -> Tensor:
        """What all processes have found, and which parameters any has reached: one sum."""
        if self._peers.count == 1:
            return g
        names = self._source.layout.names
        flags = g.new_tensor([name in self.reached for name in names])
        found = self._peers.sum(torch.cat([g.flatten(), flags]))
        self.reached |= {name for name, flag in zip(names, found[g.numel() :].tolist(), strict=True) if flag}
        return found[: g.numel()].view_as(g)


def _warn_of_another_head(path: Collection[str], trained: Set[str], reached: Set[str]) -> None:
    left, new = (set(path) & trained) - reached, reached - set(path)
    if path and left and new:
        warnings.warn(
            f"Samples of an old task were answered through {min(left)!r} when it was learnt, and are through {min(new)!r} now. Let "
            "predict take the task from the batch: a fopng.PredictTask.",
            HeadChanged,
            stacklevel=2,
        )


def total_gradient(rehearser: Rehearser, drawn: Sequence[Drawn]) -> Tensor | None:
    """The gradient of the loss on all of these, `[..., p]`; None for none."""
    return rehearser.together(_summed(rehearser, drawn)) if drawn else None


def _summed(rehearser: Rehearser, drawn: Sequence[Drawn]) -> Tensor:
    total = rehearser.gradient(drawn[0])
    for each in drawn[1:]:
        total = total + rehearser.gradient(each)
    return total


def gradients_by_task(rehearser: Rehearser, tasks: Sequence[Sequence[Drawn]]) -> Tensor | None:
    """The gradient of the loss on what was drawn of each task, `[..., k, p]`; None for no tasks."""
    tasks = [drawn for drawn in tasks if drawn]
    if not tasks:
        return None
    if all(len(drawn) == 1 for drawn in tasks):
        return rehearser.together(rehearser.gradients([each for [each] in tasks]))
    # samples that could not be joined: a row a task, not one a draw
    return rehearser.together(torch.stack([_summed(rehearser, drawn) for drawn in tasks], -2))


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.half, torch.bfloat16) else dtype
