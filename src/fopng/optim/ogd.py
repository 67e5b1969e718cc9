"""Orthogonal Gradient Descent (Farajtabar et al., 2020)."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from fopng.core.batch import Predict
from fopng.core.likelihood import Likelihood, Score
from fopng.memory.compression import WhenFull
from fopng.optim.optimizer import ContinualOptimizer, FirstTask, Groups
from fopng.optim.projected import ORTHOGONAL_GRAM_DAMPING, ProjectedMethod


@final
@dataclass(kw_only=True)
class OGDMethod(ProjectedMethod):
    """Eq. 6: `v = eta (g - G (G^T G)^-1 G^T g)`."""

    def update(self, g: Tensor, *, lr: float | Tensor, theta: Tensor | None) -> Tensor:
        return lr * self.projector(g)


@final
class OGD(ContinualOptimizer):
    """Orthogonal Gradient Descent: SGD on what is orthogonal to the stored gradients of old tasks.

    Args:
        model: the model to train.
        lr: eta, the learning rate.
        gram_damping: added to `G^T G`, times the mean of its diagonal; None for a value that covers rounding.
        gradients_per_task: gradients stored of each task.
        max_directions: the most gradients stored in all; None for no limit.
        when_full: what happens beyond that: "thin" (every task keeps an even share of its gradients) or "compress" (all are
            combined into so many that hold the most of them in the metric in use; `compression_error` tells what is lost).
        kept_energy: the share of the directions' squared length that is enough when they are compressed, by fewer directions then.
        score: of which score they are: "ground-truth" (the true class's logit), "average" (the mean logit), "log-likelihood".
        momentum: how much of the running sum of gradients is kept each step, before it is projected.
        first_task: the optimizer that steps until the first `end_task`; None for plain SGD at 1e-2, "own" for the method itself.
        predict: how the model answers a batch, `predict(model, batch) -> (outputs, targets)`; `model(x)` on `(x, y)` by default.
        likelihood: what the outputs mean: `Categorical` (default; also of tokens), `Bernoulli`, `Gaussian`.
        groups: parameters listed apart, `[{"params": ...}]`; they must share one learning rate.
        generator: draws samples and labels; by default one seeded like torch's own.
    """

    def __init__(
        self,
        model: nn.Module,
        lr: float,
        *,
        gram_damping: float | None = None,
        gradients_per_task: int = 80,
        max_directions: int | None = None,
        when_full: WhenFull = "thin",
        kept_energy: float = 1.0,
        score: Score = "ground-truth",
        momentum: float = 0.0,
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        method = OGDMethod(
            momentum=momentum,
            gradients_per_task=gradients_per_task,
            max_directions=max_directions,
            when_full=when_full,
            kept_energy=kept_energy,
            score=score,
            gram_damping=ORTHOGONAL_GRAM_DAMPING if gram_damping is None else gram_damping,
            projection="orthogonal",
        )
        super().__init__(model, lr, method, first_task, predict, likelihood, groups, generator)
