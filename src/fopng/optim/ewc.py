"""Elastic Weight Consolidation (Kirkpatrick et al., 2017)."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final, get_args

import torch
from torch import Tensor, nn

from fopng.core.batch import Predict
from fopng.core.likelihood import Labels, Likelihood
from fopng.optim.method import TaskData
from fopng.optim.optimizer import ContinualOptimizer, FirstTask, Groups
from fopng.optim.penalty import AnchoredMethod
from fopng.optim.ranges import COUNT_OR_ALL, choose


@dataclass(kw_only=True)
class ElasticMethod(AnchoredMethod):
    """`v = eta (g + strength F (theta - theta*))`, the gradient of eq. 5, anchored at the latest parameters.

    Args:
        labels: which labels the Fisher uses.
        fisher_samples: how many samples it is estimated on; None for all.
    """

    labels: Labels
    fisher_samples: int | None

    weights: ClassVar[str] = "fisher"

    def check(self) -> None:
        super().check()
        choose("labels", self.labels, get_args(Labels))
        COUNT_OR_ALL.check(self, "fisher_samples")

    def end_task(self, task: TaskData) -> None:
        fisher = task.fisher(self.labels, self.fisher_samples)
        old = self.vectors.get("fisher")
        self.vectors["fisher"] = fisher if old is None else self.joined(old, fisher)
        self.vectors["anchor"] = task.parameters()

    @abstractmethod
    def joined(self, old: Tensor, new: Tensor) -> Tensor:
        """The Fisher of all tasks, from that of the earlier ones and the latest: `[..., p]`."""


@final
@dataclass(kw_only=True)
class EWCMethod(ElasticMethod):
    """Fishers summed: `F <- F + F_t`."""

    def joined(self, old: Tensor, new: Tensor) -> Tensor:
        return old + new


@final
class EWC(ContinualOptimizer):
    """Elastic Weight Consolidation: SGD, with a pull towards the old parameters where old tasks' Fishers are large.

    Args:
        model: the model to train.
        lr: eta, the learning rate.
        strength: lambda, the weight of the penalty.
        labels: which labels the Fisher uses: "observed" (the data's), "sampled" (drawn from the model), "expected" (exact).
        fisher_samples: samples the Fisher is estimated on, drawn anew each time; None for all.
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
        strength: float = 100.0,
        labels: Labels = "observed",
        fisher_samples: int | None = None,
        momentum: float = 0.0,
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        method = EWCMethod(momentum=momentum, strength=strength, labels=labels, fisher_samples=fisher_samples)
        super().__init__(model, lr, method, first_task, predict, likelihood, groups, generator)
