"""Fisher natural gradient: the paper's baseline without a projection."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from fopng.core.batch import Predict
from fopng.core.likelihood import Labels, Likelihood
from fopng.curvature.kinds import FisherName
from fopng.optim.natural import FisherMetric
from fopng.optim.optimizer import ContinualOptimizer, FirstTask, Groups


@final
@dataclass(kw_only=True)
class FNGMethod(FisherMetric):
    """Theorem 3.3: `v = eta F_new^-1 g / sqrt(g^T F_new^-1 g)`."""

    def update(self, g: Tensor, *, lr: float | Tensor, theta: Tensor | None) -> Tensor:
        return self.natural_step(g, lr)


@final
class FNG(ContinualOptimizer):
    """Fisher natural gradient: steps of Fisher length eta along `F_new^-1 g`; nothing is kept of old tasks.

    Args:
        model: the model to train.
        lr: eta, the length of a step in the new task's Fisher metric.
        metric: how `F_new` is approximated: "diagonal", "kfac" (a Kronecker product a layer), "ekfac" (that with corrected
            eigenvalues), "low-rank" (its leading directions and a diagonal), "full" (small models).
        fisher_rank: directions that "low-rank" keeps.
        damping: lambda, added to `F_new` before it is inverted; in "kfac" split between the two factors.
        labels: which labels the Fisher uses: "observed" (the data's), "sampled" (drawn from the model), "expected" (exact).
        fisher_samples: samples the Fisher is estimated on, drawn anew each time; None for all.
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
        metric: FisherName = "diagonal",
        fisher_rank: int = 16,
        damping: float = 1e-3,
        labels: Labels = "observed",
        fisher_samples: int | None = None,
        momentum: float = 0.0,
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        method = FNGMethod(
            momentum=momentum,
            metric=metric,
            fisher_rank=fisher_rank,
            damping=damping,
            labels=labels,
            fisher_samples=fisher_samples,
        )
        super().__init__(model, lr, method, first_task, predict, likelihood, groups, generator)
