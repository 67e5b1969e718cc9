"""Fisher-Orthogonal Projected Natural Gradient Descent: the paper's method."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from fopng.core.batch import Predict
from fopng.core.likelihood import Labels, Likelihood, Score
from fopng.curvature.kinds import FisherName
from fopng.gradients.directions import Basis, ScaledBasis
from fopng.memory.compression import WhenFull
from fopng.memory.projection import Form
from fopng.optim.method import TaskData
from fopng.optim.natural import FisherMetric
from fopng.optim.optimizer import ContinualOptimizer, FirstTask, Groups
from fopng.optim.projected import ProjectedMethod, default_gram_damping
from fopng.optim.ranges import SHARE


@final
@dataclass(kw_only=True)
class FOPNGMethod(FisherMetric, ProjectedMethod):
    """Eq. 18: `v = eta F_new^-1 P g / sqrt(g^T P^T F_new^-1 P g)`, with the basis `B = F_old G`.

    Args:
        fisher_weight: alpha, the weight of the newest task in `F_old`.
    """

    fisher_weight: float | Tensor

    def check(self) -> None:
        super().check()
        SHARE.check(self, "fisher_weight")

    def basis(self) -> Basis:
        F_old = self.kept_fisher("old")
        if F_old is None or self.kind.layerwise:
            return self.visible(lambda G: G if F_old is None or G.count == 0 else self.kind.basis(F_old, G))
        # what is stored of parameters that take no part reaches those that do
        G = self.stored
        return ScaledBasis(self.kind.basis(F_old, G), self.active_mask(G.like).to(G.like.dtype)) if G.count else G

    def update(self, g: Tensor, *, lr: float | Tensor, theta: Tensor | None) -> Tensor:
        return self.natural_step(self.projector(g), lr)

    def store(self, task: TaskData, *, weight: Tensor | None) -> None:
        # at the end of the task, where the gradients are stored too (docs/deviations.md, 4)
        fisher, old = self.kind.kept(self.estimate(task)), self.kept_fisher("old")
        super().store(task, weight=weight)
        self.keep_fisher("old", fisher if old is None else self.kind.average(old, fisher, self.fisher_weight))


@final
class FOPNG(ContinualOptimizer):
    """FOPNG: steps of Fisher length eta along the natural gradient, projected away from the old tasks' `F_old G`.

    Args:
        model: the model to train.
        lr: eta, the length of a step in the new task's Fisher metric.
        metric: how `F_new` is approximated: "diagonal", "kfac" (a Kronecker product a layer), "ekfac" (that with corrected
            eigenvalues), "low-rank" (its leading directions and a diagonal), "full" (small models).
        fisher_rank: directions that "low-rank" keeps.
        damping: lambda, added to `F_new` before it is inverted; in "kfac" split between the two factors.
        gram_damping: added to the Gram matrix `A`. In the printed form as it is, None for `damping`; in the orthogonal one times
            the mean of A's diagonal, None for a value that covers rounding.
        fisher_weight: alpha, the weight of the newest task when its Fisher joins `F_old`.
        gradients_per_task: gradients stored of each task.
        max_directions: the most gradients stored in all; None for no limit.
        when_full: what happens beyond that: "thin" (every task keeps an even share of its gradients) or "compress" (all are
            combined into so many that hold the most of them in the metric in use; `compression_error` tells what is lost).
        kept_energy: the share of the directions' squared length that is enough when they are compressed, by fewer directions then.
        projection: "printed" (the paper's `P`) or "orthogonal" (the one that makes the step Fisher-orthogonal to the old tasks;
            docs/deviations.md, 1).
        labels: which labels the Fisher uses: "observed" (the data's), "sampled" (drawn from the model), "expected" (exact).
        fisher_samples: samples the Fisher is estimated on, drawn anew each time; None for all.
        score: of which score they are: "ground-truth" (the true class's logit), "average" (the mean logit), "log-likelihood".
        momentum: how much of the running sum of gradients is kept each step, before it is projected.
        first_task: the optimizer that steps until the first `end_task`; None for plain SGD at 1e-2, "own" for the method itself.
        predict: how the model answers a batch, `predict(model, batch) -> (outputs, targets)`; `model(x)` on `(x, y)` by default.
        likelihood: what the outputs mean: `Categorical` (default; also of tokens), `Bernoulli`, `Gaussian`.
        groups: parameters listed apart, `[{"params": ...}]`; they must share one learning rate.
        generator: draws samples and labels; by default one seeded like torch's own.

    >>> model = nn.Linear(3, 2)
    >>> loader = [(torch.randn(8, 3), torch.randint(2, (8,)))]
    >>> optimizer = FOPNG(model, lr=1e-2, gradients_per_task=4)
    >>> for task in range(2):
    ...     optimizer.begin_task(task)
    ...     optimizer.refresh(loader)
    ...     for x, y in loader:
    ...         optimizer.zero_grad()
    ...         torch.nn.functional.cross_entropy(model(x), y).backward()
    ...         _ = optimizer.step()
    ...     optimizer.end_task(loader)
    >>> optimizer.diagnose().directions
    8
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
        fisher_weight: float = 0.5,
        gradients_per_task: int = 80,
        max_directions: int | None = None,
        when_full: WhenFull = "thin",
        kept_energy: float = 1.0,
        projection: Form = "printed",
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
        method = FOPNGMethod(
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
            gram_damping=default_gram_damping(gram_damping, damping, projection),
            projection=projection,
            fisher_weight=fisher_weight,
        )
        super().__init__(model, lr, method, first_task, predict, likelihood, groups, generator)
