"""Methods that rehearse samples, and those of them that keep samples of old tasks."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import final

from torch import Tensor

from fopng.memory.replay_draws import TaskSamples
from fopng.memory.replay_samples import Block, SampleMemory
from fopng.optim.method import Method


@final
@dataclass(frozen=True)
class Rehearsal:
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


@dataclass(kw_only=True)
class RehearsingMethod(Method, ABC):
    """A method that asks in every step for the gradient on samples of its own; `_old` is what it was told last."""

    _old: Tensor | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.samples = SampleMemory()

    @property
    def kept(self) -> SampleMemory:
        """The samples."""
        assert self.samples is not None
        return self.samples

    @abstractmethod
    def extent(self, tasks: int, samples: int) -> Rehearsal:
        """How much it takes with so many tasks of so many samples."""


@dataclass(kw_only=True)
class ReplayMethod(RehearsingMethod):
    """A method that keeps samples of each task when it ends, and rehearses them while it learns the next."""

    def keep(self, sampling: TaskSamples, count: int, *, apart: bool) -> None:
        """Keep some samples of the task at hand.

        Args:
            sampling: the task.
            count: how many.
            apart: whether tasks must stay apart, although one head answers them all.
        """
        drawn, learnt = sampling.draw(count), [*self.kept.learnt, sampling.learnt()]
        for each in drawn:
            sampling.check(each.batch)
        names = [task.name for task in learnt]
        together = not apart and sampling.answered_alike(drawn[0].batch, names)
        named, number = names[0 if together else -1], len(self.kept.learnt)
        blocks = [Block.of(replace(each, batch=sampling.as_task(each.batch, named)), number) for each in drawn]
        self.kept.add(blocks, together=together)
        self.kept.seed(sampling, drawn[0].ranks.device)
        self.kept.learnt = learnt
