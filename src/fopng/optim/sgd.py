"""Plain stochastic gradient descent, with the life cycle of the others."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from fopng.core.batch import Predict
from fopng.core.likelihood import Likelihood
from fopng.optim.method import Method
from fopng.optim.optimizer import ContinualOptimizer, FirstTask, Groups


@final
@dataclass(kw_only=True)
class SGDMethod(Method):
    """`v = eta g`."""

    def update(self, g: Tensor, *, lr: float | Tensor, theta: Tensor | None) -> Tensor:
        return lr * g


@final
class SGD(ContinualOptimizer):
    """Plain stochastic gradient descent: nothing is kept of old tasks.

    Args:
        model: the model to train.
        lr: eta, the learning rate.
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
        momentum: float = 0.0,
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        method = SGDMethod(momentum=momentum)
        super().__init__(model, lr, method, first_task, predict, likelihood, groups, generator)
