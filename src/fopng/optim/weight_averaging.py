"""Where a task ends: not where its last step went, but a mean over its steps, or part of the way there from where it began."""

from abc import abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fopng.core.layout import ParamLayout
from fopng.curvature.moments import matrix_key
from fopng.optim.method import Method, TaskData, beside
from fopng.optim.ranges import NOT_THE_WHOLE, SHARE

STEPS = matrix_key("steps")
"""How many steps of the task at hand have been seen."""

MEAN, START = "mean_weights", "first_weights"
"""The mean over the steps of the task at hand, and where it began."""


@dataclass(kw_only=True)
class SettlingMethod(Method):
    """Ends a task with `theta <- mean - m (mean - start)`: the mean over its steps, and part of the way back to where it began.

    Args:
        averaging: a, about which part of a task's steps, the last ones, the mean is over; 0 for the last step alone.
        merging: m, which part of the way back a task ends, in parameters that an old task has used.
    """

    averaging: float | Tensor
    merging: float | Tensor

    _unknown: bool = field(default=True, init=False, repr=False)
    """Whether there may be parameters of whose way nothing is known: NaN."""

    def check(self) -> None:
        super().check()
        SHARE.check(self, "averaging")
        NOT_THE_WHOLE.check(self, "merging")

    @property
    def needs_parameters(self) -> bool:
        # merging alone wants to know where the task began, and no more until it ends
        return _asked(self.averaging) or (_asked(self.merging) and STEPS not in self.matrices)

    @property
    def settles(self) -> bool:
        """Whether a task ends elsewhere than its last step went, in any of the runs."""
        return _asked(self.averaging) or _asked(self.merging)

    @abstractmethod
    def used(self) -> Tensor | None:
        """Which parameters an old task has used, `[..., p]`; None before any task is done."""

    @abstractmethod
    def keep(self, task: TaskData) -> None:
        """Keep what the method needs of a task, where it has ended."""

    def follow(self, theta: Tensor) -> None:
        """Take in where the last step has led, and whatever else has been done to the parameters since.

        `mean += (theta - mean) (2 - a) / (a t + 2 - 2 a)` after t steps: the weight of a step grows as a power of its number, so
        that the length of the task need not be known, and the mean is as old as that over the last part a of all steps.
        """
        if not self.settles:
            return
        if STEPS not in self.matrices:
            self.matrices[STEPS] = theta.new_zeros(())
            if _asked(self.merging):
                self.vectors[START] = theta.clone()
            return
        if self._unknown:
            known = [name for name in (MEAN, START) if name in self.vectors]
            self.vectors |= {name: torch.where(self.vectors[name].isnan(), theta, self.vectors[name]) for name in known}
            self._unknown = False
        steps = self.matrices[STEPS] + 1
        if _asked(self.averaging):
            a = beside(self.averaging)
            self.vectors[MEAN] = torch.lerp(self.vectors.get(MEAN, theta), theta, (2 - a) / (a * steps + 2 - 2 * a))
        self.matrices[STEPS] = steps

    def end_task(self, task: TaskData) -> None:
        if self.settles and STEPS in self.matrices:
            theta = task.parameters()
            self.follow(theta)
            # a state that was saved with other settings may hold a mean, or lack a start
            end, used = self.vectors[MEAN] if _asked(self.averaging) else theta, self.used()
            if used is not None and _asked(self.merging) and START in self.vectors:
                end = end - (end - self.vectors[START]) * beside(self.merging) * used
            task.move(end)
        self.forget_task()
        self.keep(task)

    def forget_task(self) -> None:
        for name in (MEAN, START):
            self.vectors.pop(name, None)
        self.matrices.pop(STEPS, None)

    def attach(self, layout: ParamLayout) -> None:
        old, before = getattr(self, "layout", layout), dict(self.vectors)
        super().attach(layout)
        self._unknown = True
        for name in {MEAN, START} & before.keys() if layout != old else ():
            there = layout.carry(torch.ones_like(before[name]), old)
            self.vectors[name] = torch.where(there > 0, self.vectors[name], torch.nan)


def _asked(setting: float | Tensor) -> bool:
    """Whether a setting is not zero, in any of the runs."""
    return isinstance(setting, Tensor) or setting != 0
