"""Scaled Gradient Projection (Saha and Roy, 2023)."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from fopng.core.batch import Predict
from fopng.core.likelihood import Likelihood
from fopng.optim.gpm import InputMemory
from fopng.optim.method import beside
from fopng.optim.optimizer import ContinualOptimizer, FirstTask, Groups
from fopng.optim.ranges import AT_LEAST_0


@final
@dataclass(kw_only=True)
class SGPMethod(InputMemory):
    """A direction counts as much as its singular value: `lambda = (alpha + 1) s / (alpha s + max s)`, added up over tasks to 1.

    Args:
        importance_scale: alpha; the higher, the more all directions count alike.
    """

    importance_scale: float | Tensor

    def check(self) -> None:
        super().check()
        AT_LEAST_0.check(self, "importance_scale")

    def weigh(self, values: Tensor, old: Tensor) -> Tensor:
        alpha = beside(self.importance_scale)
        largest = values.amax(-1, keepdim=True)
        latest = (alpha + 1) * values / (alpha * values + largest)
        return (torch.where(largest > 0, latest, 0.0) + old).clamp(max=1.0)


@final
class SGP(ContinualOptimizer):
    """Scaled Gradient Projection: GPM that lets go of each old direction as far as it did not matter much.

    Args:
        model: the model to train.
        lr: eta, the learning rate.
        importance_scale: alpha: 0 lets a direction count in proportion to its singular value, large values make it GPM.
        threshold: epsilon, the share of the squared length of each layer's inputs that a task must leave in the memory.
        threshold_growth: how much higher it is with each task, up to 1.
        input_samples: samples whose inputs are looked at when a task ends, drawn anew each time; None for all.
        momentum: how much of the running sum of gradients is kept each step, before it is projected.
        first_task: the optimizer that steps until the first `end_task`; None for the method itself, "own" for the method itself.
        predict: how the model answers a batch, `predict(model, batch) -> (outputs, targets)`; `model(x)` on `(x, y)` by default.
        likelihood: what the outputs mean: `Categorical` (default; also of tokens), `Bernoulli`, `Gaussian`.
        groups: parameters with a learning rate of their own, `[{"params": ..., "lr": ...}]`.
        generator: draws samples; by default one seeded like torch's own.
    """

    def __init__(
        self,
        model: nn.Module,
        lr: float,
        *,
        importance_scale: float = 10.0,
        threshold: float = 0.95,
        threshold_growth: float = 0.0,
        input_samples: int | None = 300,
        momentum: float = 0.0,
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        method = SGPMethod(
            momentum=momentum,
            importance_scale=importance_scale,
            threshold=threshold,
            threshold_growth=threshold_growth,
            input_samples=input_samples,
        )
        super().__init__(model, lr, method, first_task, predict, likelihood, groups, generator)
