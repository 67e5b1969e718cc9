"""Weight averaging and merging at the end of a task."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Generic, TypeVar

from torch import Tensor

from fopng.core.tree import node
from fopng.core.vector import Vector
from fopng.optim.method import Method, Needs, Running, State
from fopng.optim.settings import SHARE, SHARE_BELOW_1, settings
from fopng.optim.task import Task

MERGING = (
    "`end_task` moves the weights that an old task has used this part of the way back to where the task started, "
    "from 0 to below 1, so evaluate after it. 0 ends a task where its last step went."
)


@node
@dataclass(frozen=True)
class AveragingRunning(Running):
    """The way of the task at hand; a parameter that is absent has no known way.

    Args:
        steps: how many steps have been seen, `[]`; None before the first.
        mean: the mean of the weights over the steps.
        start: where the task began.
    """

    steps: Tensor | None = None
    mean: Vector | None = None
    start: Vector | None = None


S = TypeVar("S", bound=State)


@settings
class Averaging(Method[S, AveragingRunning], Generic[S]):
    """Ends a task with `theta <- mean - m (mean - start)`: the mean over its steps, and part of the way back to its start."""

    averaging: Annotated[
        float,
        SHARE,
        "from 0 to 1, over which last part of a task's steps the weights are averaged: `end_task` puts their mean into the "
        "model. 0 leaves them where the last step took them.",
    ] = 0.0
    merging: Annotated[float, SHARE_BELOW_1, MERGING] = 0.0

    running_type: ClassVar[type[Running]] = AveragingRunning

    @property
    def needs(self) -> Needs:
        return Needs(path=_asked(self.averaging) or _asked(self.merging))

    @abstractmethod
    def used(self, state: S, theta: Vector) -> Vector | None:
        """1 for parameters that an old task has used, 0 or absent for others; None before any task is done."""

    @abstractmethod
    def keep(self, state: S, task: Task) -> S:
        """Keep what the method needs of a task, where it has ended."""

    def follow(self, running: AveragingRunning, theta: Vector) -> AveragingRunning:
        """Take in where the last step has led, and whatever else has been done to the parameters since.

        `mean += (theta - mean) (2 - a) / (a t + 2 - 2 a)` after t steps: the weight of a step grows as a power of its number, so
        that the length of the task need not be known, and the mean is as old as that over the last part a of all steps.
        """
        if running.steps is None:
            start = theta.clone() if _asked(self.merging) else None
            return replace(running, steps=theta.like.new_zeros(()), start=start)
        start = None if running.start is None else _completed(running.start, theta)
        if not _asked(self.averaging):
            # merging alone wants to know where the task began, and no more until it ends
            return running if start is running.start else replace(running, start=start)
        steps, a = running.steps + 1, self.averaging
        mean = theta if running.mean is None else _completed(running.mean, theta)
        mean = mean + (theta - mean) * ((2 - a) / (a * steps + 2 - 2 * a))
        return replace(running, steps=steps, mean=mean, start=start)

    def end_task(self, state: S, running: AveragingRunning, task: Task) -> tuple[S, AveragingRunning]:
        if not self.needs.path or running.steps is None:
            return self.keep(state, task), self.forget_task(running)
        theta = task.parameters()
        task.move(self._end(state, self.follow(running, theta), theta))
        try:
            return self.keep(state, task), self.forget_task(running)
        except Exception:
            # as if the end had not been tried
            task.move(theta)
            raise

    def _end(self, state: S, running: AveragingRunning, theta: Vector) -> Vector:
        """Where a task ends whose last step went to `theta`."""
        # a state that was saved with other settings may hold a mean, or lack a start
        end = running.mean if _asked(self.averaging) and running.mean is not None else theta
        used = self.used(state, theta)
        if used is None or running.start is None or not _asked(self.merging):
            return end
        return end - (end - running.start) * used * self.merging

    def forget_task(self, running: AveragingRunning) -> AveragingRunning:
        return replace(running, steps=None, mean=None, start=None)


def _asked(setting: float) -> bool:
    """Whether a setting is not zero, in any of the runs."""
    return isinstance(setting, Tensor) or setting != 0


def _completed(known: Vector, theta: Vector) -> Vector:
    """Parameters of whose way nothing is known begin it here."""
    if theta.parts.keys() <= known.parts.keys():
        return known
    return known.updated(theta.without(known.parts).clone())
