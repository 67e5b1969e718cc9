"""Orthogonal natural gradient: a Euclidean projection, then the inverse Fisher."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from fopng.core.batch import Predict
from fopng.core.likelihood import Labels, Likelihood, Score
from fopng.curvature.kinds import FisherName
from fopng.curvature.metric import Identity, Metric
from fopng.memory.compression import WhenFull
from fopng.optim.natural import FisherMetric
from fopng.optim.optimizer import ContinualOptimizer, FirstTask, Groups
from fopng.optim.projected import ORTHOGONAL_GRAM_DAMPING, ProjectedMethod


@final
@dataclass(kw_only=True)
class ONGMethod(FisherMetric, ProjectedMethod):
    """`v` along `F_new^-1 (g - G (G^T G)^-1 G^T g)`, of Fisher length eta: eq. 6 before a natural gradient."""

    def projection_metric(self) -> Metric:
        return Identity()

    def update(self, g: Tensor, *, lr: float | Tensor, theta: Tensor | None) -> Tensor:
        return self.natural_step(self.projector(g), lr)


@final
class ONG(ContinualOptimizer):
    """Orthogonal natural gradient: OGD's Euclidean projection, preconditioned with the new task's Fisher.

    Args:
        model: the model to train.
        lr: eta, the length of a step in the new task's Fisher metric.
        metric: how `F_new` is approximated: "diagonal", "kfac" (a Kronecker product a layer), "ekfac" (that with corrected
            eigenvalues), "low-rank" (its leading directions and a diagonal), "full" (small models).
        fisher_rank: directions that "low-rank" keeps.
        damping: lambda, added to `F_new` before it is inverted; in "kfac" split between the two factors.
        gram_damping: added to `G^T G`, times the mean of its diagonal; None for a value that covers rounding.
        gradients_per_task: gradients stored of each task.
        max_directions: the most gradients stored in all; None for no limit.
        when_full: what happens beyond that: "thin" (every task keeps an even share of its gradients) or "compress" (all are
            combined into so many that hold the most of them in the metric in use; `compression_error` tells what is lost).
        kept_energy: the share of the directions' squared length that is enough when they are compressed, by fewer directions then.
        score: of which score they are: "ground-truth" (the true class's logit), "average" (the mean logit), "log-likelihood".
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
        gram_damping: float | None = None,
        gradients_per_task: int = 80,
        max_directions: int | None = None,
        when_full: WhenFull = "thin",
        kept_energy: float = 1.0,
        labels: Labels = "observed",
        fisher_samples: int | None = None,
        score: Score = "ground-truth",
        momentum: float = 0.0,
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        method = ONGMethod(
            momentum=momentum,
            metric=metric,
            fisher_rank=fisher_rank,
            damping=damping,
            labels=labels,
            fisher_samples=fisher_samples,
            gradients_per_task=gradients_per_task,
            max_directions=max_directions,
            when_full=when_full,
            kept_energy=kept_energy,
            score=score,
            gram_damping=ORTHOGONAL_GRAM_DAMPING if gram_damping is None else gram_damping,
            projection="orthogonal",
        )
        super().__init__(model, lr, method, first_task, predict, likelihood, groups, generator)
