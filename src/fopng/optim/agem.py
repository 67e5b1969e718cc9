"""Averaged Gradient Episodic Memory (Chaudhry et al., 2019)."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from fopng.core.batch import Predict
from fopng.core.likelihood import Likelihood
from fopng.memory.replay_samples import Rehearser
from fopng.optim.method import TaskData
from fopng.optim.optimizer import ContinualOptimizer, FirstTask, Groups
from fopng.optim.ranges import COUNT
from fopng.optim.rehearsal import total_gradient
from fopng.optim.replay_base import Rehearsal, ReplayMethod


@final
@dataclass(kw_only=True)
class AGEMMethod(ReplayMethod):
    """`v = eta (g - min(0, g^T r) / (r^T r) r)` (eq. 11), with `r` the gradient on samples of old tasks, drawn anew each step.

    Args:
        samples_per_task: how many samples each task leaves.
        replay_samples: how many are rehearsed in a step.
    """

    samples_per_task: int
    replay_samples: int

    scalar_rate: ClassVar[bool] = True

    def check(self) -> None:
        super().check()
        COUNT.check(self, "samples_per_task", "replay_samples")

    def extent(self, tasks: int, samples: int) -> Rehearsal:
        return Rehearsal(self.samples_per_task * tasks, max(self.replay_samples, tasks), 2)

    def rehearse(self, rehearser: Rehearser) -> None:
        self._old = total_gradient(rehearser, self.kept.draw(self.replay_samples))

    def update(self, g: Tensor, *, lr: float | Tensor, theta: Tensor | None) -> Tensor:
        return lr * (g if self._old is None else without_conflict(g, self._old))

    def end_task(self, task: TaskData) -> None:
        self.keep(task.sampling, self.samples_per_task, apart=False)


def without_conflict(g: Tensor, r: Tensor) -> Tensor:
    """The vector nearest to `g` that has no negative product with `r`: `[..., p]`."""
    length = (r * r).sum(-1, keepdim=True)
    against = (g * r).sum(-1, keepdim=True).clamp(max=0)
    return g - torch.where(length > 0, against / length, 0.0) * r


@final
class AGEM(ContinualOptimizer):
    """Averaged GEM: a step against the mean gradient of old samples is projected until it is not. Keeps data.

    Args:
        model: the model to train.
        lr: eta, the learning rate.
        samples_per_task: how many samples each task leaves.
        replay_samples: how many of them, of all old tasks together, are rehearsed in a step.
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
        replay_samples: int = 256,
        momentum: float = 0.0,
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        method = AGEMMethod(momentum=momentum, samples_per_task=samples_per_task, replay_samples=replay_samples)
        super().__init__(model, lr, method, first_task, predict, likelihood, groups, generator)
