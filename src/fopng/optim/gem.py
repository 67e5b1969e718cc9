"""Gradient Episodic Memory (Lopez-Paz and Ranzato, 2017)."""

from dataclasses import replace
from typing import Annotated, ClassVar, final

import torch

from fopng.core.vector import Vector, broadcast
from fopng.memory.gem_qp import cone_products, cone_weights
from fopng.memory.replay_samples import Rehearser
from fopng.optim.method import About, Needs, Step
from fopng.optim.replay_base import Replay, ReplayExtent, ReplayRunning, ReplayState, gradients_by_task
from fopng.optim.settings import AT_LEAST_0, COUNT, COUNT_OR_ALL, settings
from fopng.optim.task import Task


@final
@settings
class GEM(Replay):
    """Gradient Episodic Memory: a step that would raise the loss on the samples of any old task is projected. Keeps data.

    `v = eta (g + G^T (u + margin))`, `u` the dual solution of `min |g' - g|` over `G g' >= 0` (eq. 11 and 12); `g` if it obeys. The
    rows of `G` are the gradients on the samples of each old task.
    """

    about: ClassVar[About] = About("gem", "Gradient Episodic Memory", 2017, "Lopez-Paz, Ranzato", "samples", True)

    samples_per_task: Annotated[int, COUNT, "how many samples each task leaves."] = 256
    replay_samples: Annotated[
        int | None, COUNT_OR_ALL, "how many samples of each old task are rehearsed in a step; None for all."
    ] = None
    margin: Annotated[
        float,
        AT_LEAST_0,
        "gamma, by how much a step that had to be projected goes down the losses of old tasks besides.",
    ] = 0.5

    @property
    def needs(self) -> Needs:
        return Needs(samples=True, one_rate=True)

    def extent(self, tasks: int, samples: int) -> ReplayExtent:
        asked = self.replay_samples or self.samples_per_task
        return ReplayExtent(self.samples_per_task * tasks, asked, 2 * tasks, tasks)

    def recall(
        self, state: ReplayState, running: ReplayRunning, rehearser: Rehearser
    ) -> tuple[Vector | None, ReplayRunning]:
        drawn, counters = state.samples.draw_by_task(running.counters, self.replay_samples)
        return gradients_by_task(rehearser, drawn), replace(running, counters=counters)

    def gradient(self, g: Vector, step: Step[ReplayState, ReplayRunning]) -> Vector:
        # heads of old tasks take part: they may be moved, too
        G = step.rehearsed
        return g if G is None else g.extended(Vector({name: part.select(g.lead, 0) for name, part in G.parts.items()}))

    def base(self, g: Vector, step: Step[ReplayState, ReplayRunning]) -> Vector:
        return (g if step.rehearsed is None else in_cone(g, step.rehearsed, self.margin)) * step.lr

    def end_task(self, state: ReplayState, running: ReplayRunning, task: Task) -> tuple[ReplayState, ReplayRunning]:
        return self.kept(state, running, task.sampling, self.samples_per_task, apart=True)


def in_cone(g: Vector, G: Vector, margin: float) -> Vector:
    """The vector nearest to `g` that has no negative product with a row of `G [*lead, k, *shape]`, and some margin."""
    # a head of more precision may count among the parameters before the new task's gradient does
    G = G.map(lambda rows: rows.to(g.like.dtype))
    gram, products = cone_products(G, g)
    u = cone_weights(gram, products)
    against = (products < 0).any(-1, keepdim=True)
    weights = torch.where(against, u + broadcast(margin, u), 0.0).unsqueeze(-2)
    back = {
        name: (weights @ rows.reshape(*rows.shape[: g.lead + 1], -1)).reshape(
            (*rows.shape[: g.lead], *rows.shape[g.lead + 1 :])
        )
        for name, rows in G.parts.items()
    }
    return g + Vector(back, g.lead)
