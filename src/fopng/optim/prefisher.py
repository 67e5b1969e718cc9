"""FOPNG-PreFisher: the paper's variant that weights each task's gradients with that task's own Fisher."""

from dataclasses import dataclass
from typing import Literal, TypeAlias, final, get_args

import torch
from torch import Tensor, nn

from fopng.core.batch import Predict
from fopng.core.likelihood import Labels, Likelihood, Score
from fopng.curvature.kinds import FisherName
from fopng.gradients.directions import Basis, MixedBasis
from fopng.memory.compression import WhenFull
from fopng.memory.projection import Form
from fopng.optim.method import TaskData
from fopng.optim.natural import FisherMetric
from fopng.optim.optimizer import ContinualOptimizer, FirstTask, Groups
from fopng.optim.projected import ProjectedMethod, default_gram_damping
from fopng.optim.ranges import choose

PreFisher: TypeAlias = Literal["diagonal", "empirical", "metric"]
"""What multiplies a task's gradients: its diagonal Fisher, the empirical Fisher of the gradients themselves, or its Fisher as the
metric approximates it."""


@final
@dataclass(kw_only=True)
class FOPNGPreFisherMethod(FisherMetric, ProjectedMethod):
    """Eq. 18 with the basis of eq. 24, `B = [F_1 G_1, F_2 G_2, ...]`.

    Args:
        prefisher: which Fisher `F_t` is.
    """

    prefisher: PreFisher

    def check(self) -> None:
        super().check()
        choose("prefisher", self.prefisher, get_args(PreFisher))

    @property
    def variant(self) -> str:
        return f"{super().variant}, prefisher={self.prefisher!r}"

    def basis(self) -> Basis:
        G = self.visible()
        return G if self.prefisher != "empirical" or G.count == 0 else MixedBasis(G, self._empirical_mix())

    def _empirical_mix(self) -> Tensor:
        """`F_t G_t = G_t (G_t^T G_t) / k_t`: how each task's gradients are combined, block by block, `[..., m, m]`."""
        mix = self.stored.gram(None)
        shares = torch.tensor(self.stored.shares, device=mix.device)
        task = torch.repeat_interleave(torch.arange(len(shares), device=mix.device), shares)
        mix = torch.where(task[:, None] == task, mix, 0.0) / shares[task]
        if self.stored.error is not None:
            # what is compressed has been multiplied by its tasks' Fishers before
            done = torch.eye(self.stored.shares[0], dtype=mix.dtype, device=mix.device)
            mix[..., : len(done), : len(done)] = done
        return mix

    def stored_combinations(self, mix: Tensor) -> Tensor:
        return self._empirical_mix() @ mix if self.prefisher == "empirical" else mix

    def update(self, g: Tensor, *, lr: float | Tensor, theta: Tensor | None) -> Tensor:
        return self.natural_step(self.projector(g), lr)

    def store(self, task: TaskData, *, weight: Tensor | None) -> None:
        if self.prefisher == "metric" and self.metric != "diagonal":
            fisher = self.kind.kept(self.estimate(task))
            blocks = task.gradients(self.gradients_per_task, self.score)
            self.stored.append(*(self.kind.times(fisher, block) for block in blocks))
            return
        if self.prefisher != "empirical":
            weight = task.fisher(self.labels, self.fisher_samples)
        super().store(task, weight=weight)


@final
class FOPNGPreFisher(ContinualOptimizer):
    """FOPNG-PreFisher: as FOPNG, with every task's gradients weighted by that task's own Fisher once and for all.

    Args:
        model: the model to train.
        lr: eta, the length of a step in the new task's Fisher metric.
        metric: how `F_new` is approximated: "diagonal", "kfac" (a Kronecker product a layer), "ekfac" (that with corrected
            eigenvalues), "low-rank" (its leading directions and a diagonal), "full" (small models).
        fisher_rank: directions that "low-rank" keeps.
        damping: lambda, added to `F_new` before it is inverted; in "kfac" split between the two factors.
        gram_damping: added to the Gram matrix `A`. In the printed form as it is, None for `damping`; in the orthogonal one times
            the mean of A's diagonal, None for a value that covers rounding.
        gradients_per_task: gradients stored of each task.
        max_directions: the most gradients stored in all; None for no limit.
        when_full: what happens beyond that: "thin" (every task keeps an even share of its gradients) or "compress" (all are
            combined into so many that hold the most of them in the metric in use; `compression_error` tells what is lost).
        kept_energy: the share of the directions' squared length that is enough when they are compressed, by fewer directions then.
        projection: "printed" (the paper's `P`) or "orthogonal" (the one that makes the step Fisher-orthogonal to the old tasks;
            docs/deviations.md, 1).
        prefisher: what multiplies a task's gradients: "diagonal" (its diagonal Fisher) or "empirical" (the empirical Fisher of
            the stored gradients, `G_t G_t^T / k`, never formed) or "metric" (its Fisher as the metric approximates it).
        labels: which labels the Fisher uses: "observed" (the data's), "sampled" (drawn from the model), "expected" (exact).
        fisher_samples: samples the Fisher is estimated on, drawn anew each time; None for all.
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
        metric: FisherName = "diagonal",
        fisher_rank: int = 16,
        damping: float = 1e-3,
        gram_damping: float | None = None,
        gradients_per_task: int = 80,
        max_directions: int | None = None,
        when_full: WhenFull = "thin",
        kept_energy: float = 1.0,
        projection: Form = "printed",
        prefisher: PreFisher = "diagonal",
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
        method = FOPNGPreFisherMethod(
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
            prefisher=prefisher,
        )
        super().__init__(model, lr, method, first_task, predict, likelihood, groups, generator)
