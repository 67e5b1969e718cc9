"""Experience Replay with a reservoir (Chaudhry et al., 2019)."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from fopng.core.batch import Predict
from fopng.core.likelihood import Likelihood
from fopng.memory.replay_samples import Rehearser
from fopng.optim.method import TaskData, beside
from fopng.optim.optimizer import ContinualOptimizer, FirstTask, Groups
from fopng.optim.ranges import AT_LEAST_0, COUNT
from fopng.optim.rehearsal import total_gradient
from fopng.optim.replay_base import Rehearsal, ReplayMethod


@final
@dataclass(kw_only=True)
class ERMethod(ReplayMethod):
    """`v = eta (g + strength g_old)`, with `g_old` the gradient on samples of old tasks, drawn anew each step.

    Args:
        capacity: the most samples kept in all: a uniform sample of everything seen.
        replay_samples: how many are rehearsed in a step.
        strength: the weight of their loss.
    """

    capacity: int
    replay_samples: int
    strength: float | Tensor

    def check(self) -> None:
        super().check()
        COUNT.check(self, "capacity", "replay_samples")
        AT_LEAST_0.check(self, "strength")

    def extent(self, tasks: int, samples: int) -> Rehearsal:
        return Rehearsal(self.capacity + min(samples, self.capacity), max(self.replay_samples, tasks), 2)

    def rehearse(self, rehearser: Rehearser) -> None:
        self._old = total_gradient(rehearser, self.kept.draw(self.replay_samples))

    def gradient(self, g: Tensor, theta: Tensor | None) -> Tensor:
        return g if self._old is None else g + beside(self.strength) * self._old

    def update(self, g: Tensor, *, lr: float | Tensor, theta: Tensor | None) -> Tensor:
        return lr * g

    def end_task(self, task: TaskData) -> None:
        self.keep(task.sampling, self.capacity, apart=False)
        self.kept.limit(self.capacity)


@final
class ER(ContinualOptimizer):
    """Experience Replay: SGD on the new task and on some kept samples of the old ones. Keeps data.

    Args:
        model: the model to train.
        lr: eta, the learning rate.
        capacity: the most samples kept in all, each sample of the old tasks as likely to be among them (a reservoir).
        replay_samples: how many of them are rehearsed in a step.
        strength: the weight of their mean loss, that of the new samples being 1.
        momentum: how much of the running sum of gradients is kept each step, before it is projected.
        first_task: the optimizer that steps until the first `end_task`; None for the method itself, "own" for the method itself.
        predict: how the model answers a batch, `predict(model, batch) -> (outputs, targets)`; `model(x)` on `(x, y)` by default.
            For a model with a head a task, one that takes the task from the batch.
        likelihood: what the outputs mean: `Categorical` (default; also of tokens), `Bernoulli`, `Gaussian`.
        groups: parameters with a learning rate of their own, `[{"params": ..., "lr": ...}]`.
        generator: draws samples and labels; by default one seeded like torch's own.
    """

    def __init__(
        self,
        model: nn.Module,
        lr: float,
        *,
        capacity: int = 1000,
        replay_samples: int = 10,
        strength: float = 1.0,
        momentum: float = 0.0,
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        method = ERMethod(momentum=momentum, capacity=capacity, replay_samples=replay_samples, strength=strength)
        super().__init__(model, lr, method, first_task, predict, likelihood, groups, generator)
