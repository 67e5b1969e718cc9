"""Averaged Gradient Episodic Memory (Chaudhry et al., 2019)."""

from typing import Annotated, ClassVar, final

import torch

from fopng.core.vector import Vector
from fopng.memory.replay_samples import Rehearser
from fopng.optim.method import About, Needs, Step
from fopng.optim.replay_base import Replay, ReplayExtent, ReplayRunning, ReplayState
from fopng.optim.settings import COUNT, settings
from fopng.optim.task import Task


@final
@settings
class AGEM(Replay):
    """Averaged GEM: a step against the mean gradient of old samples is projected until it is not. Keeps data.

    `v = eta (g - min(0, g^T r) / (r^T r) r)` (eq. 11), with `r` the gradient on samples of old tasks, drawn anew each step.
    """

    about: ClassVar[About] = About(
        "a-gem", "Averaged Gradient Episodic Memory", 2019, "Chaudhry et al.", "samples", True
    )

    samples_per_task: Annotated[int, COUNT, "how many samples each task leaves."] = 256
    replay_samples: Annotated[int, COUNT, "how many of them, of all old tasks together, are rehearsed in a step."] = 256

    @property
    def needs(self) -> Needs:
        return Needs(samples=True, one_rate=True)

    def extent(self, tasks: int, samples: int) -> ReplayExtent:
        return ReplayExtent(self.samples_per_task * tasks, max(self.replay_samples, tasks), 2)

    def recall(
        self, state: ReplayState, running: ReplayRunning, rehearser: Rehearser
    ) -> tuple[Vector | None, ReplayRunning]:
        return self.rehearsed(state, running, rehearser, self.replay_samples)

    def gradient(self, g: Vector, step: Step[ReplayState, ReplayRunning]) -> Vector:
        # heads of old tasks take part: they may be moved, too
        return g if step.rehearsed is None else g.extended(step.rehearsed)

    def base(self, g: Vector, step: Step[ReplayState, ReplayRunning]) -> Vector:
        return (g if step.rehearsed is None else without_conflict(g, step.rehearsed)) * step.lr

    def end_task(self, state: ReplayState, running: ReplayRunning, task: Task) -> tuple[ReplayState, ReplayRunning]:
        return self.kept(state, running, task.sampling, self.samples_per_task, apart=False)


def without_conflict(g: Vector, r: Vector) -> Vector:
    """The vector nearest to `g` that has no negative product with `r`."""
    length = r.dot(r)
    against = g.dot(r).clamp(max=0)
    return g - r * torch.where(length > 0, against / length, 0.0)
