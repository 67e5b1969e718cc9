"""Fisher orthogonality made soft, with a Kronecker-factored Fisher: no stored gradients, no Gram matrix."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from fopng.core.batch import Predict
from fopng.core.likelihood import Likelihood, Signals
from fopng.curvature.kronecker import across
from fopng.curvature.moments import Moments, matrix_key
from fopng.optim.kronecker_base import KroneckerMemory
from fopng.optim.method import TaskData
from fopng.optim.optimizer import ContinualOptimizer, FirstTask, Groups
from fopng.optim.ranges import AT_LEAST_0, SHARE

UNITS = matrix_key("units")
"""The sum over old tasks of their Fishers' units."""

LENGTHS = matrix_key("lengths")
"""The steps of all old tasks that took any, and how many tasks that are: `[2]`."""


@final
@dataclass(kw_only=True)
class KroneckerFOPNGMethod(KroneckerMemory):
    """`v = eta (I + s min(1, N / N_f) T^(q-1) F_old)^-1 g`, near g and changing old answers little (docs/kronecker.md).

    `F_old = sum_t F_t / (f_t^b f^(1-b))` over the T old tasks, `f_t` the mean of the diagonal of a task's Fisher and f the mean of
    those: s means the same whatever the scale of inputs and outputs and the number of parameters.

    Args:
        evenness: e, how much all outputs of a layer count alike.
        growth: q, how what is held back grows with the number of tasks: 0 takes their mean, 1 their sum.
        balance: b, how alike old tasks count, whatever the size of their Fishers.
        full_steps: `N_f`, from how many steps a task on, N in the mean over old ones, the strength is full.
    """

    evenness: float | Tensor
    growth: float | Tensor
    balance: float | Tensor
    full_steps: float | Tensor

    def check(self) -> None:
        super().check()
        SHARE.check(self, "evenness", "growth", "balance")
        AT_LEAST_0.check(self, "full_steps")

    @property
    def variant(self) -> str:
        # the units are in the sums that are kept
        return f"{super().variant}, balance={float(self.balance):g}"

    def counted(self, signals: Tensor) -> Tensor:
        """`(1 - e) G + e (tr G / o) I`: an output that sends nothing back now may do so once it is moved."""
        each = signals.diagonal(dim1=-2, dim2=-1)
        even = torch.diag_embed(each.mean(-1, keepdim=True).expand_as(each))
        return torch.lerp(signals, even, across(self.evenness, signals))

    def keep(self, task: TaskData) -> None:
        super().keep(task)
        # of a task that was learnt elsewhere nothing is known
        if steps := task.steps:
            taken = self.tasks().new_tensor([steps, 1])
            self.matrices[LENGTHS] = self.matrices.get(LENGTHS, torch.zeros_like(taken)) + taken

    def remember(self, moments: Moments) -> None:
        unit = moments.mean_diagonal()
        self.matrices[UNITS] = self.matrices.get(UNITS, torch.zeros_like(unit)) + unit
        super().remember(moments.over(_unit(unit) ** self.balance))

    def weight(self) -> float | Tensor:
        common = _unit(self.matrices[UNITS] / self.tasks())
        return self.strength * self.full_share() * self.tasks() ** (self.growth - 1) / common ** (1 - self.balance)

    def full_share(self) -> float | Tensor:
        """`min(1, N / N_f)`: in N steps a task moves N times as far along what is held back, so that few steps need less of it."""
        if LENGTHS not in self.matrices:
            return 1.0
        total, tasks = self.matrices[LENGTHS]
        full = self.full_steps if isinstance(self.full_steps, Tensor) else float(self.full_steps)
        share: Tensor = (total / tasks / full).clamp(max=1)
        return share

    def update(self, g: Tensor, *, lr: float | Tensor, theta: Tensor | None) -> Tensor:
        return lr * self.held_back(g)


def _unit(mean: Tensor) -> Tensor:
    """What to divide by; where nothing came back from the outputs there is nothing to hold on to."""
    return torch.where(mean > 0, mean, 1.0)


@final
class KroneckerFOPNG(ContinualOptimizer):
    """FOPNG made soft, with a Kronecker-factored `F_old`: the gradient, held back where old answers depend on the parameters.

    Each step solves `min |v - g|^2 + s |v|^2_F` with F the old tasks' Fisher and s the strength (docs/kronecker.md). Kept of old
    tasks are two small square matrices a layer, however many there are. Its closest relative is natural continual learning (Kao,
    2021).

    Args:
        model: the model to train.
        lr: eta, the learning rate, SGD's.
        strength: s, how much a change of old answers weighs against the gradient; 0 takes SGD's steps. Less of it where tasks are
            short: `full_steps`.
        evenness: how much all outputs of a layer count alike, from 0 (as much as the model's outputs depend on them now) to 1.
        growth: q, the strength grows with the number T of old tasks as T^q: 1 takes the sum of their Fishers, 0 (for long streams)
            the mean.
        balance: 1 where every task is learnt well: all old tasks count alike, also one whose Fisher is small since the model is
            sure of it. 0 where early tasks end well below what later ones reach: each counts as much as its Fisher is large.
        full_steps: from how many steps a task on the strength is full. Where old tasks took fewer (their mean), it is less in
            proportion: few steps do not get far where they are held back. 0 for the full strength always.
        signals: what is sent back from the outputs for the moments: the score of "sampled" (the model's), "observed" (the data's)
            or "expected" (all) labels, as in a Fisher, or "normal" (noise of variance one: all outputs count alike).
        fisher_samples: samples the moments are taken on, drawn anew each time; None for all.
        rank: eigenvectors of a layer's inputs that are kept, the others share one eigenvalue; None for all.
        averaging: from 0 to 1, which part of a task's steps, the last ones, the weights are averaged over: `end_task` puts the
            mean of them into the model. 0 leaves them where the last step took them.
        merging: from 0 to below 1, which part of the way back to where it began a task ends, in weights that an old task has used:
            `end_task` goes there, so look at accuracies after it. 0 ends a task where its last step went.
        momentum: how much of the running sum of gradients is kept each step, before it is held back.
        first_task: the optimizer that steps until the first `end_task`; None for the method itself, "own" for the method itself.
        predict: how the model answers a batch, `predict(model, batch) -> (outputs, targets)`; `model(x)` on `(x, y)` by default.
        likelihood: what the outputs mean: `Categorical` (default; also of tokens), `Bernoulli`, `Gaussian`.
        groups: parameters with a learning rate of their own, `[{"params": ..., "lr": ...}]`.
        generator: draws samples, noise and labels; by default one seeded like torch's own.

    >>> model = nn.Linear(3, 2)
    >>> loader = [(torch.randn(8, 3), torch.randint(2, (8,)))]
    >>> optimizer = KroneckerFOPNG(model)
    >>> for task in range(2):
    ...     optimizer.begin_task(task)
    ...     for x, y in loader:
    ...         optimizer.zero_grad()
    ...         torch.nn.functional.cross_entropy(model(x), y).backward()
    ...         _ = optimizer.step()
    ...     optimizer.end_task(loader)
    """

    def __init__(
        self,
        model: nn.Module,
        lr: float = 0.1,
        *,
        strength: float = 30.0,
        evenness: float = 0.5,
        growth: float = 1.0,
        balance: float = 1.0,
        full_steps: float = 4000.0,
        signals: Signals = "sampled",
        fisher_samples: int | None = 2000,
        rank: int | None = 128,
        averaging: float = 0.0,
        merging: float = 0.3,
        momentum: float = 0.0,
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        method = KroneckerFOPNGMethod(
            momentum=momentum,
            strength=strength,
            evenness=evenness,
            growth=growth,
            balance=balance,
            full_steps=full_steps,
            signals=signals,
            fisher_samples=fisher_samples,
            rank=rank,
            averaging=averaging,
            merging=merging,
        )
        super().__init__(model, lr, method, first_task, predict, likelihood, groups, generator)
