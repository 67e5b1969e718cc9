"""Methods that rehearse samples: what they keep, and gradients on samples of their own in the middle of a step."""

import warnings
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence, Set
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from fopng.core.batch import sample_count
from fopng.core.layout import wide_dtype
from fopng.core.tree import node
from fopng.core.vector import Vector
from fopng.gradients.per_sample import PerSampleGradients
from fopng.memory.replay_draws import TaskSamples
from fopng.memory.replay_samples import Drawn, Rehearser, ReplayCounters, SampleBlock, SampleMemory
from fopng.optim.method import Method, Needs, Running, State
from fopng.optim.settings import settings
from fopng.optim.undisturbed import evaluating, still_statistics
from fopng.parallel.collectives import SINGLE_PROCESS, Communicator


@final
@dataclass(frozen=True)
class ReplayExtent:
    """How much rehearsing takes at the most.

    Args:
        kept: samples that are kept.
        asked: samples of a draw, which are asked about at a time.
        gradients: gradients held at a time.
        draws: how many draws are asked for, each for a gradient of its own; a device may take several in one pass.
    """

    kept: int
    asked: int
    gradients: int
    draws: int = 1


@final
@node
@dataclass(frozen=True)
class ReplayState(State):
    """The samples that a method keeps."""

    samples: SampleMemory = field(default_factory=SampleMemory)


@final
@node
@dataclass(frozen=True)
class ReplayRunning(Running):
    """How often samples were drawn."""

    counters: ReplayCounters | None = None


@settings
class Replay(Method[ReplayState, ReplayRunning]):
    """A method that asks in every step for the gradient on samples of its own."""

    state_type: ClassVar[type[State]] = ReplayState
    running_type: ClassVar[type[Running]] = ReplayRunning

    @property
    def needs(self) -> Needs:
        return Needs(samples=True)

    @abstractmethod
    def extent(self, tasks: int, samples: int) -> ReplayExtent:
        """How much it takes with so many tasks of so many samples."""

    def rehearsed(
        self, state: ReplayState, running: ReplayRunning, rehearser: Rehearser, count: int
    ) -> tuple[Vector | None, ReplayRunning]:
        """The gradient on about `count` samples of all that are kept, others each time."""
        drawn, counters = state.samples.draw(running.counters, count)
        return total_gradient(rehearser, drawn), replace(running, counters=counters)

    def kept(
        self, state: ReplayState, running: ReplayRunning, sampling: TaskSamples, count: int, *, apart: bool
    ) -> tuple[ReplayState, ReplayRunning]:
        """Keep some samples of the task at hand.

        Args:
            state: what is kept of others.
            running: gets a key for the draws, once.
            sampling: the task.
            count: how many.
            apart: whether tasks must stay apart, although one head answers them all.
        """
        samples = state.samples
        drawn, learnt = sampling.draw(count), (*samples.learnt, sampling.learnt())
        for each in drawn:
            sampling.check(each.batch)
        names = [task.name for task in learnt]
        together = not apart and sampling.answered_alike(drawn[0].batch, names)
        named, number = names[0 if together else -1], len(samples.learnt)
        blocks = [SampleBlock.of(replace(each, batch=sampling.as_task(each.batch, named)), number) for each in drawn]
        samples = replace(samples.added(blocks, together=together), learnt=learnt)
        return ReplayState(samples), seeded(running, sampling, drawn[0].ranks.device)


def seeded(running: ReplayRunning, sampling: TaskSamples, place: torch.device) -> ReplayRunning:
    """Take a key from the run's own randomness, once, to where the samples are."""
    if running.counters is not None:
        return running
    key = sampling.key().to(place)
    return replace(running, counters=ReplayCounters(key, torch.zeros_like(key)))


def total_gradient(rehearser: Rehearser, drawn: Sequence[Drawn]) -> Vector | None:
    """The gradient of the loss on all of these; None for none."""
    return rehearser.together(reduce(add, map(rehearser.gradient, drawn))) if drawn else None


def gradients_by_task(rehearser: Rehearser, tasks: Sequence[Sequence[Drawn]]) -> Vector | None:
    """The gradient of the loss on what was drawn of each task, `[*lead, k, *shape]`; None for no tasks."""
    tasks = [drawn for drawn in tasks if drawn]
    if not tasks:
        return None
    if all(len(drawn) == 1 for drawn in tasks):
        return rehearser.together(rehearser.gradients([each for [each] in tasks]))
    # samples that could not be joined: a row a task, not one a draw
    return rehearser.together(stacked([reduce(add, map(rehearser.gradient, drawn)) for drawn in tasks]))


def stacked(rows: Sequence[Vector]) -> Vector:
    """Vectors as the rows of one, `[*lead, k, *shape]`."""
    every = reduce(Vector.extended, rows).zeros()
    whole = [every.updated(row) for row in rows]
    lead = rows[0].lead
    return Vector({name: torch.stack([row[name] for row in whole], lead) for name in every.parts}, lead + 1)


class HeadChanged(UserWarning):
    """Samples of an old task are answered through another head than when it was learnt."""


@final
class ModelRehearser:
    """An optimizer's model, in the mode that it is trained in: old samples are learnt as new ones are, dropout included.

    Args:
        source: the model.
        parameters: those of its layout, by name.
        communicator: the processes that rehearse with it, each on samples of its own.
    """

    def __init__(
        self,
        source: PerSampleGradients,
        parameters: Mapping[str, nn.Parameter],
        communicator: Communicator = SINGLE_PROCESS,
    ) -> None:
        self._source, self._parameters, self._communicator = source, parameters, communicator

    def gradient(self, drawn: Drawn) -> Vector:
        """The gradient of the loss on these samples, of the parameters that they reach."""
        if not sample_count(drawn.batch):
            # others have been drawn, in other processes
            return Vector({})
        trained = {name: parameter for name, parameter in self._parameters.items() if parameter.requires_grad}
        with torch.enable_grad(), still_statistics(self._source.model) if drawn.still else nullcontext():
            outputs, targets = self._source.predict(self._source.model, drawn.batch)
        found: Sequence[Tensor | None] = [None] * len(trained)
        if outputs.requires_grad:
            signal = drawn.signal(self._source.likelihood, outputs.detach(), targets)
            found = torch.autograd.grad(outputs, list(trained.values()), signal, allow_unused=True)
        reached = {name: g for name, g in zip(trained, found, strict=True) if g is not None}
        _warn_of_another_head(drawn.path, trained.keys(), reached.keys())
        kind = wide_dtype(self._parameters.values())
        return Vector({name: (g.to_dense() if g.is_sparse else g).to(kind) for name, g in reached.items()})

    def gradients(self, drawn: Sequence[Drawn]) -> Vector:
        """The gradient on each of these draws, `[k, *shape]`, one after another."""
        return stacked([self.gradient(each) for each in drawn])

    def together(self, g: Vector) -> Vector:
        """What all processes have found."""
        return g if self._communicator.count == 1 else Vector(self._communicator.sum_named(g.parts), g.lead)

    def divergence(self, drawn: Drawn) -> Tensor:
        """How far the answers to these samples are now from those that are to be answered, dropout off: the mean, `[]`."""
        assert drawn.answers is not None
        source, processes = self._source, self._communicator
        with torch.no_grad(), evaluating(source.model):
            outputs = source.predict(source.model, drawn.batch)[0]
        outputs = outputs.to(wide_dtype([outputs]))
        each = source.likelihood.divergence(outputs, drawn.answers.beside(outputs), drawn.shares.dim())
        found = (each * drawn.shares.to(each)).sum(-1)
        return found if processes.count == 1 else processes.sum(found.clone()) / processes.count


def _warn_of_another_head(path: Collection[str], trained: Set[str], reached: Set[str]) -> None:
    left, new = (set(path) & trained) - reached, reached - set(path)
    if path and left and new:
        warnings.warn(
            f"Samples of an old task were answered through {min(left)!r} when it was learnt, and are through {min(new)!r} now. Let "
            "predict take the task from the batch: a fopng.PredictTask.",
            HeadChanged,
            stacklevel=2,
        )
