"""Online Elastic Weight Consolidation (Schwarz et al., 2018)."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from fopng.core.batch import Predict
from fopng.core.likelihood import Labels, Likelihood
from fopng.optim.ewc import ElasticMethod
from fopng.optim.method import beside
from fopng.optim.optimizer import ContinualOptimizer, FirstTask, Groups
from fopng.optim.ranges import SHARE


@final
@dataclass(kw_only=True)
class OnlineEWCMethod(ElasticMethod):
    """Old Fishers fade: `F <- decay F + F_t`.

    Args:
        decay: gamma, how much of the earlier tasks' Fisher each new task leaves.
    """

    decay: float | Tensor

    def check(self) -> None:
        super().check()
        SHARE.check(self, "decay")

    def joined(self, old: Tensor, new: Tensor) -> Tensor:
        return beside(self.decay) * old + new


@final
class OnlineEWC(ContinualOptimizer):
    """Online EWC: EWC whose earlier tasks' Fishers fade, so that long streams leave room to learn; `decay=1` is EWC.

    Args:
        model: the model to train.
        lr: eta, the learning rate.
        strength: lambda, the weight of the penalty.
        decay: gamma, how much of the earlier tasks' Fisher each new task leaves, from 0 (only the latest task counts) to 1 (EWC).
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
        decay: float = 0.95,
        labels: Labels = "observed",
        fisher_samples: int | None = None,
        momentum: float = 0.0,
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        method = OnlineEWCMethod(
            momentum=momentum, strength=strength, decay=decay, labels=labels, fisher_samples=fisher_samples
        )
        super().__init__(model, lr, method, first_task, predict, likelihood, groups, generator)
