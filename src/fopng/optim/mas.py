"""Memory Aware Synapses (Aljundi et al., 2018)."""

from dataclasses import dataclass
from typing import final

import torch
from torch import nn

from fopng.core.batch import Predict
from fopng.core.likelihood import Likelihood
from fopng.optim.method import TaskData
from fopng.optim.optimizer import ContinualOptimizer, FirstTask, Groups
from fopng.optim.penalty import AnchoredMethod
from fopng.optim.ranges import COUNT_OR_ALL


@final
@dataclass(kw_only=True)
class MASMethod(AnchoredMethod):
    """`v = eta (g + strength W (theta - theta*))`, `W <- W + mean_n |d |outputs_n|^2 / d theta|` at the end of a task (eq. 3, 4).

    Args:
        sensitivity_samples: how many samples the sensitivity is estimated on; None for all.
    """

    sensitivity_samples: int | None

    def check(self) -> None:
        super().check()
        COUNT_OR_ALL.check(self, "sensitivity_samples")

    def end_task(self, task: TaskData) -> None:
        found = task.sampling.sensitivity(self.sensitivity_samples)
        old = self.vectors.get("importance")
        self.vectors |= {"importance": found if old is None else old + found, "anchor": task.parameters()}


@final
class MAS(ContinualOptimizer):
    """Memory Aware Synapses: SGD, with a pull towards the old parameters where the answers to old samples hang on them.

    Args:
        model: the model to train.
        lr: eta, the learning rate.
        strength: lambda, the weight of the penalty.
        sensitivity_samples: samples the sensitivity of the answers is estimated on, drawn anew each time; None for all.
        momentum: how much of the running sum of gradients is kept each step, before it is projected.
        first_task: the optimizer that steps until the first `end_task`; None for the method itself, "own" for the method itself.
        predict: how the model answers a batch, `predict(model, batch) -> (outputs, targets)`; `model(x)` on `(x, y)` by default.
        likelihood: what the outputs mean: `Categorical` (default; also of tokens), `Bernoulli`, `Gaussian`.
        groups: parameters with a learning rate of their own, `[{"params": ..., "lr": ...}]`.
        generator: draws samples and labels; by default one seeded like torch's own.
    """

    def __init__(
        self,
        model: nn.Module,
        lr: float,
        *,
        strength: float = 1.0,
        sensitivity_samples: int | None = None,
        momentum: float = 0.0,
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        method = MASMethod(momentum=momentum, strength=strength, sensitivity_samples=sensitivity_samples)
        super().__init__(model, lr, method, first_task, predict, likelihood, groups, generator)
