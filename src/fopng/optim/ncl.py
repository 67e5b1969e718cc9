"""Natural Continual Learning (Kao et al., 2021)."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias, final, get_args

import torch
from torch import Tensor, nn

from fopng.core.batch import Predict
from fopng.core.likelihood import Likelihood, Signals
from fopng.curvature.moments import Moments
from fopng.optim.kronecker_base import KroneckerMemory
from fopng.optim.method import TaskData, beside
from fopng.optim.optimizer import ContinualOptimizer, FirstTask, Groups
from fopng.optim.ranges import ABOVE_0, choose, require

Precision: TypeAlias = Literal["kfac", "diagonal"]
"""How the precision of old tasks is approximated. Eigenvalues of EKFAC belong to one task's eigenvectors: docs/kronecker.md."""


@final
@dataclass(kw_only=True)
class NCLMethod(KroneckerMemory):
    """`v = (eta / s) L^-1 (g + L (theta - theta*))`: the prior precision `L = F_old + I / s` as preconditioner and regulariser.

    Args:
        metric: how `F_old` is approximated.
    """

    metric: Precision

    _pulled: Tensor | None = field(default=None, init=False, repr=False)

    @property
    def needs_parameters(self) -> bool:
        return True

    def check(self) -> None:
        ABOVE_0.check(self, "strength")
        super().check()
        choose("metric", self.metric, get_args(Precision))
        sent = self.metric == "kfac" or self.signals != "normal"
        require(sent, "Expected signals of labels with metric='diagonal', got 'normal'. Use 'sampled'.")

    @property
    def variant(self) -> str:
        return f"{super().variant}, metric={self.metric!r}"

    def measure(self, task: TaskData) -> Moments:
        if self.metric == "kfac" or self.signals == "normal":
            return super().measure(task)
        return Moments({}, task.fisher(self.signals, self.fisher_samples))

    def update(self, g: Tensor, *, lr: float | Tensor, theta: Tensor | None) -> Tensor:
        if not self.remembers:
            return lr * g
        assert theta is not None
        moved = (theta - self.vectors["anchor"]) * self.pulled()
        return lr * (self.held_back(g) + moved / beside(self.strength))

    def pulled(self) -> Tensor:
        """Which parameters have an old value to be pulled to: those that take part and that an old task has used, `[..., p]`."""
        if self._pulled is None:
            used = self.used()
            assert used is not None
            self._pulled = used & self.active_mask(used)
        return self._pulled

    def keep(self, task: TaskData) -> None:
        super().keep(task)
        self.vectors["anchor"] = task.parameters()

    def forget_derived(self) -> None:
        self._pulled = None
        super().forget_derived()


@final
class NCL(ContinualOptimizer):
    """Natural Continual Learning: natural gradients in the metric of the old tasks' precision, with a pull to the old parameters.

    It minimises the new loss plus `|theta - theta*|^2 / 2` in the precision `F_old + I / strength`, and takes its steps in that
    metric, too. `F_old` is Kronecker-factored; tasks are added up factor by factor (docs/kronecker.md).

    Args:
        model: the model to train.
        lr: eta, the learning rate; Kao's gamma is `lr / strength`.
        strength: s, the inverse of the prior precision that every parameter starts with: how freely it may move where no old task
            holds it.
        metric: how `F_old` is approximated: "kfac" (a Kronecker product a layer) or "diagonal".
        signals: whose score is sent back from the outputs for the Fisher: of "sampled" (the model's), "observed" (the data's) or
            "expected" (all) labels; or "normal" noise of variance one.
        fisher_samples: samples the moments are taken on, drawn anew each time; None for all.
        rank: eigenvectors of a layer's inputs that are kept, the others share one eigenvalue; None for all.
        averaging: from 0 to 1, which part of a task's steps, the last ones, the weights are averaged over: `end_task` puts the
            mean of them into the model. 0, as Kao has it, leaves them where the last step took them.
        merging: from 0 to below 1, which part of the way back to where it began a task ends, in weights that an old task has used;
            `end_task` goes there. 0, as Kao has it, for none.
        momentum: how much of the running sum of gradients is kept each step, before it is held back.
        first_task: the optimizer that steps until the first `end_task`; None for the method itself, "own" for the method itself.
        predict: how the model answers a batch, `predict(model, batch) -> (outputs, targets)`; `model(x)` on `(x, y)` by default.
        likelihood: what the outputs mean: `Categorical` (default; also of tokens), `Bernoulli`, `Gaussian`.
        groups: parameters with a learning rate of their own, `[{"params": ..., "lr": ...}]`.
        generator: draws samples, noise and labels; by default one seeded like torch's own.
    """

    def __init__(
        self,
        model: nn.Module,
        lr: float = 0.05,
        *,
        strength: float = 10_000.0,
        metric: Precision = "kfac",
        signals: Signals = "sampled",
        fisher_samples: int | None = 2000,
        rank: int | None = 128,
        averaging: float = 0.0,
        merging: float = 0.0,
        momentum: float = 0.0,
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        method = NCLMethod(
            momentum=momentum,
            strength=strength,
            metric=metric,
            signals=signals,
            fisher_samples=fisher_samples,
            rank=rank,
            averaging=averaging,
            merging=merging,
        )
        super().__init__(model, lr, method, first_task, predict, likelihood, groups, generator)
