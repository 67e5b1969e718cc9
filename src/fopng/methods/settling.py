"""Where a task ends: not where its last step went, but a mean over its steps, or part of the way there from where it began."""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from fopng.methods.base import Method, TaskData, beside
from fopng.methods.ranges import NOT_THE_WHOLE, SHARE
from fopng.moments import matrix_key
from fopng.parameters import ParamLayout

STEPS = matrix_key("steps")
"""How many steps of the task at hand are in the mean of the weights."""


@dataclass(kw_only=True)
class SettlingMethod(Method):
    """Ends a task with `theta <- mean - m (mean - start)`: the mean over its steps, and part of the way back to where it began.

    Args:
        averaging: a, about which part of a task's steps, the last ones, the mean is over; 0 for the last step alone.
        merging: m, which part of the way a task ends back, in parameters that an old task has used.
    """

    averaging: float | Tensor
    merging: float | Tensor

    def check(self) -> None:
        super().check()
        SHARE.check(self, "averaging")
        NOT_THE_WHOLE.check(self, "merging")

    @property
    def needs_parameters(self) -> bool:
        return self.settles

    @property
    def settles(self) -> bool:
        """Whether a task ends elsewhere than its last step went, in any of the runs."""
        return any(isinstance(setting, Tensor) or setting != 0 for setting in (self.averaging, self.merging))

    def update(self, g: Tensor, *, lr: float | Tensor, theta: Tensor | None) -> Tensor:
        v = self.advance(g, lr, theta)
        if self.settles:
            assert theta is not None
            self.follow(theta, v)
        return v

    @abstractmethod
    def advance(self, g: Tensor, lr: float | Tensor, theta: Tensor | None) -> Tensor:
        """The step to subtract from the parameters, `[..., p]` all; they are given to methods that need them."""

    @abstractmethod
    def used(self) -> Tensor | None:
        """Which parameters an old task has used, `[..., p]`; None before any task is done."""

    def follow(self, theta: Tensor, v: Tensor) -> None:
        """Take a step `v` from `theta` into the mean.

        `mean += (theta - v - mean) (2 - a) / (a t + 2 - 2 a)` at the t-th step: the weight of a step grows as a power of its
        number, so that the length of the task need not be known, and the mean is as old as that over the last part a of all steps.
        """
        a = beside(self.averaging)
        steps = self.matrices.get(STEPS, theta.new_zeros(())) + 1
        mean, start = (self.vectors.get(name, theta) for name in ("mean", "start"))
        self.vectors["mean"] = torch.lerp(mean, theta - v, (2 - a) / (a * steps + 2 - 2 * a))
        # steps that were dropped, since numbers were not finite, have not been counted: no way to tell them without waiting
        self.vectors["start"] = torch.where(steps > 1, start, theta)
        self.matrices[STEPS] = steps

    def settle(self, task: TaskData) -> None:
        """Put the parameters where the task ends; again, if what comes after it failed."""
        if STEPS not in self.matrices:
            return
        mean, used = self.vectors["mean"], self.used()
        if used is not None:
            back = (mean - self.vectors["start"]) * beside(self.merging)
            mean = mean - back * used
        task.move(mean)

    def forget_way(self) -> None:
        """Forget the way of the task at hand."""
        for name in ("mean", "start"):
            self.vectors.pop(name, None)
        self.matrices.pop(STEPS, None)

    def attach(self, layout: ParamLayout) -> None:
        if layout != getattr(self, "layout", layout):
            # nothing is known of where a parameter that is new has been
            self.forget_way()
        super().attach(layout)
