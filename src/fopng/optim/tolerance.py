"""Steering: old tasks are measured on their probes, and what holds on to them follows, so that they lose as much as they may.

What was lost, m, is the mean over old tasks of the divergence of today's answers from those at a task's end. With a tolerance a
strength is `s0 d (m / a)^4`: a bend limits how fast m grows, so that a steep law settles where m is about a; d adapts slowly, so
that the bend lets go where it is not what holds m. A rehearsal, which gives back what was lost, has the weight `w0 m / a`, up to
w0; where that is not enough the gradient of the new task is made smaller.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from fopng.core.tree import node
from fopng.memory.probe import TaskProbe
from fopng.memory.replay_samples import Drawn

EVERY = 10
"""Steps between two measurements; the first steps of a task are measured one by one."""

MEASURED = 48
"""Inputs of one old task that are measured at a time; another task's the next time."""

REHEARSED = 8
"""Inputs of one old task that are rehearsed in a step; another task's in the next."""

RECENT = 0.5
"""The weight of the latest measurement of a task, the rest being that of those before."""

STEEPNESS = 4.0
"""The power of what is lost, over what may be, that strengths follow."""

DRIFT = 0.1
"""By as much the logarithm of d changes at a time at most."""

FARTHEST = 5.0
"""How far that logarithm may go."""

RELEASE = 0.1
"""By as much the logarithm of what strengths follow falls at a time at most; it rises at once. A task begins at m = a."""

LEAST, MOST = -3.0, 1.5
"""The logarithm of what is lost over what may be is cut to these."""

UNBEARABLE = 1e3
"""More than so much is not told from it: an answer that has become impossible is infinitely far."""

ALLOWED = 2.0
"""So many times the tolerance may be lost without a warning."""


@node
@final
@dataclass(frozen=True)
class Steering:
    """How far old tasks are from what they may lose, and what follows from it.

    Args:
        lost: the mean divergence of each old task, in nats, as it was measured lately, `[*lead, t]`.
        push: the logarithm of m over the tolerance that strengths follow now, `[*lead]`.
        drift: the logarithm of d, `[*lead]`.
        steps: of the task at hand.
        turn: how many measurements there were.
    """

    lost: Tensor
    push: Tensor
    drift: Tensor
    steps: int = 0
    turn: int = 0

    @classmethod
    def new(cls, like: Tensor) -> "Steering":
        """Before anything was measured; like a tensor `[*lead]`."""
        return cls(like.unsqueeze(-1)[..., :0], torch.zeros_like(like), torch.zeros_like(like))

    @property
    def mean(self) -> Tensor:
        """What old tasks have lost, `[*lead]`."""
        return self.lost.mean(-1)

    @property
    def worst(self) -> Tensor:
        """What the one has lost that has lost the most, `[*lead]`."""
        return self.lost.amax(-1)

    @property
    def factor(self) -> Tensor:
        """What strengths are multiplied with now, `[*lead]`."""
        return (STEEPNESS * self.push + self.drift).exp()

    @property
    def due(self) -> bool:
        """Whether it is time to measure."""
        return self.steps <= EVERY or self.steps % EVERY == 0

    def another_task(self) -> "Steering":
        """A task is done: it has lost nothing yet."""
        lost = torch.cat([self.lost, torch.zeros_like(self.push).unsqueeze(-1)], -1)
        # each has memory of its own: runs side by side are written in place
        push, drift = torch.zeros_like(self.push), torch.zeros_like(self.drift)
        return replace(self, lost=lost, push=push, drift=drift, steps=0)

    def to_measure(self, probes: Sequence[TaskProbe]) -> Drawn:
        """Inputs of the task that is measured next."""
        return probes[self.turn % len(probes)].to_measure(self.turn // len(probes), MEASURED)

    def to_rehearse(self, probes: Sequence[TaskProbe]) -> Drawn:
        """Inputs of the task that is rehearsed in this step."""
        return probes[self.steps % len(probes)].to_rehearse(self.steps // len(probes), REHEARSED)

    @property
    def share_of_old(self) -> Tensor:
        """What the weight of a rehearsal is multiplied with, `[*lead]`."""
        return self.push.clamp(max=0).exp()

    @property
    def share_of_new(self) -> Tensor:
        """What the gradient of the new task is multiplied with, where the largest weight does not hold old tasks, `[*lead]`."""
        return (-self.push).clamp(max=0).exp()

    def quantities(self) -> dict[str, Tensor]:
        """What it knows, by name."""
        return {"lost_measured": self.mean, "lost_worst": self.worst}

    def measured(self, found: Tensor, tolerance: float | Tensor) -> "Steering":
        """Follow a measurement, `[*lead]`, of the task whose turn it is."""
        number = self.turn % self.lost.shape[-1]
        lost = self.lost.clone()
        lost[..., number] += RECENT * (found.clamp(max=UNBEARABLE) - lost[..., number])
        # rounded, what has not moved may have lost less than nothing
        excess = (lost.mean(-1).clamp(min=0) / tolerance).log().clamp(LEAST, MOST)
        push = torch.maximum(excess, self.push - RELEASE)
        drift = (self.drift + DRIFT * excess.clamp(-1, 1)).clamp(-FARTHEST, FARTHEST)
        return replace(self, lost=lost, push=push, drift=drift, turn=self.turn + 1)


class ToleranceExceeded(UserWarning):
    """Old tasks have lost more than they may."""


def warn_if_exceeded(steering: Steering | None, tolerance: float | None) -> None:
    """Warn at the end of a task during which old tasks lost much more than they may."""
    if steering is None or tolerance is None or not steering.turn:
        return
    lost = float(steering.mean)
    if lost > ALLOWED * tolerance:
        warnings.warn(
            f"Expected old tasks to lose at most {tolerance:g} (tolerance), measured {lost:.3g} at the end of a task, the worst "
            f"{float(steering.worst):.3g}. Lower the learning rate, or allow more.",
            ToleranceExceeded,
            stacklevel=3,
        )
