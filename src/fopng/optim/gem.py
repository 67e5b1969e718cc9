"""Gradient Episodic Memory (Lopez-Paz and Ranzato, 2017)."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from fopng.core.batch import Predict
from fopng.core.likelihood import Likelihood
from fopng.memory.gem_qp import cone_products, cone_weights
from fopng.memory.replay_samples import Rehearser
from fopng.optim.method import TaskData, beside
from fopng.optim.optimizer import ContinualOptimizer, FirstTask, Groups
from fopng.optim.ranges import AT_LEAST_0, COUNT, COUNT_OR_ALL
from fopng.optim.rehearsal import gradients_by_task
from fopng.optim.replay_base import Rehearsal, ReplayMethod


@final
@dataclass(kw_only=True)
class GEMMethod(ReplayMethod):
    """`v = eta (g + G^T (u + margin))`, `u` the dual solution of `min |g' - g|` over `G g' >= 0` (eq. 11 and 12); `g` if it obeys.

    The rows of `G` are the gradients on the samples of each old task.

    Args:
        samples_per_task: how many samples each task leaves.
        replay_samples: how many of each old task are rehearsed in a step; None for all.
        margin: gamma, added to `u` where `g` does not obey.
    """

    samples_per_task: int
    replay_samples: int | None
    margin: float | Tensor

    scalar_rate: ClassVar[bool] = True

    def check(self) -> None:
        super().check()
        COUNT.check(self, "samples_per_task")
        COUNT_OR_ALL.check(self, "replay_samples")
        AT_LEAST_0.check(self, "margin")

    def extent(self, tasks: int, samples: int) -> Rehearsal:
        return Rehearsal(self.samples_per_task * tasks, self.replay_samples or self.samples_per_task, 2 * tasks, tasks)

    def rehearse(self, rehearser: Rehearser) -> None:
        # the last step's are let go first: there are many of them
        self._old = None
        self._old = gradients_by_task(rehearser, self.kept.draw_by_task(self.replay_samples))

    def update(self, g: Tensor, *, lr: float | Tensor, theta: Tensor | None) -> Tensor:
        return lr * (g if self._old is None else self._in_cone(g, self._old))

    def _in_cone(self, g: Tensor, G: Tensor) -> Tensor:
        # a head of more precision may count among the parameters before the new task's gradient does
        G = G.to(g.dtype)
        gram, products = cone_products(G, g)
        u = cone_weights(gram, products)
        against = (products < 0).any(-1, keepdim=True)
        return g + (torch.where(against, u + beside(self.margin), 0.0).unsqueeze(-2) @ G).squeeze(-2)

    def end_task(self, task: TaskData) -> None:
        self.keep(task.sampling, self.samples_per_task, apart=True)


@final
class GEM(ContinualOptimizer):
    """Gradient Episodic Memory: a step that would raise the loss on the samples of any old task is projected. Keeps data.

    Args:
        model: the model to train.
        lr: eta, the learning rate.
        samples_per_task: how many samples each task leaves.
        replay_samples: how many samples of each old task are rehearsed in a step; None for all.
        margin: gamma, by how much a step that had to be projected goes down the losses of old tasks besides.
        momentum: how much of the running sum of gradients is kept each step, before it is projected.
        first_task: the optimizer that steps until the first `end_task`; None for the method itself, "own" for the method itself.
        predict: how the model answers a batch, `predict(model, batch) -> (outputs, targets)`; `model(x)` on `(x, y)` by default.
            For a model with a head a task, one that takes the task from the batch.
        likelihood: what the outputs mean: `Categorical` (default; also of tokens), `Bernoulli`, `Gaussian`.
        groups: parameters listed apart, `[{"params": ...}]`; they must share one learning rate.
        generator: draws samples and labels; by default one seeded like torch's own.
    """

    def __init__(
        self,
        model: nn.Module,
        lr: float,
        *,
        samples_per_task: int = 256,
        replay_samples: int | None = None,
        margin: float = 0.5,
        momentum: float = 0.0,
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        method = GEMMethod(
            momentum=momentum, samples_per_task=samples_per_task, replay_samples=replay_samples, margin=margin
        )
        super().__init__(model, lr, method, first_task, predict, likelihood, groups, generator)
