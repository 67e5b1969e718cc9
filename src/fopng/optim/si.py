"""Synaptic Intelligence (Zenke et al., 2017)."""

from dataclasses import dataclass, field
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from fopng.core.batch import Predict
from fopng.core.likelihood import Likelihood
from fopng.optim.method import TaskData, beside
from fopng.optim.optimizer import ContinualOptimizer, FirstTask, Groups
from fopng.optim.penalty import AnchoredMethod
from fopng.optim.ranges import ABOVE_0


@final
@dataclass(kw_only=True)
class SIMethod(AnchoredMethod):
    """`v = eta (g + 2 strength W (theta - theta*))`, `W <- max(0, W + w / (D^2 + damping))` at the end of a task (eq. 4, 5).

    `w` is the path integral, the sum over the task's steps of `g v`: by how much each parameter lowered the loss; `D` is how far
    it moved. `g` is the gradient of the loss alone, and the first task counts whoever learns it.

    Args:
        damping: xi, added to the squared distance before it divides.
    """

    damping: float | Tensor

    watches: ClassVar[bool] = True
    slope: ClassVar[float] = 2.0

    _loss_gradient: Tensor | None = field(default=None, init=False, repr=False)

    def check(self) -> None:
        super().check()
        ABOVE_0.check(self, "damping")

    def gradient(self, g: Tensor, theta: Tensor | None) -> Tensor:
        self._loss_gradient = g
        return super().gradient(g, theta)

    def update(self, g: Tensor, *, lr: float | Tensor, theta: Tensor | None) -> Tensor:
        v = super().update(g, lr=lr, theta=theta)
        assert self._loss_gradient is not None
        self.watch(self._loss_gradient, v)
        return v

    def watch(self, g: Tensor, v: Tensor) -> None:
        for name, change in (("path", g * v), ("moved", v)):
            old = self.vectors.get(name)
            self.vectors[name] = change if old is None else old + change

    def end_task(self, task: TaskData) -> None:
        theta = task.parameters()
        w, D, W = (self.vectors.get(name, torch.zeros_like(theta)) for name in ("path", "moved", "importance"))
        W = (W + w / (D.square() + beside(self.damping))).clamp(min=0)
        self.vectors |= {"importance": W, "anchor": theta, "path": torch.zeros_like(w), "moved": torch.zeros_like(D)}


@final
class SI(ContinualOptimizer):
    """Synaptic Intelligence: SGD, with a pull towards the old parameters where they lowered the loss of old tasks the most.

    Args:
        model: the model to train.
        lr: eta, the learning rate.
        strength: c, the weight of the penalty.
        damping: xi, added to the squared distance that a parameter moved in a task, before it divides its importance.
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
        strength: float = 1.0,
        damping: float = 1e-3,
        momentum: float = 0.0,
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        method = SIMethod(momentum=momentum, strength=strength, damping=damping)
        super().__init__(model, lr, method, first_task, predict, likelihood, groups, generator)
