"""Adam (Kingma and Ba, 2015), with the life cycle of the others."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from fopng.core.batch import Predict
from fopng.core.likelihood import Likelihood
from fopng.optim.method import Method, beside
from fopng.optim.optimizer import ContinualOptimizer, FirstTask, Groups
from fopng.optim.ranges import AT_LEAST_0, require


@final
@dataclass(kw_only=True)
class AdamMethod(Method):
    """`v = eta m / (sqrt(s) + epsilon)`, with m and s the bias-corrected means of the gradient and of its square.

    Args:
        betas: how much of the two means is kept each step.
        epsilon: added to the root, so that nothing is divided by zero.
    """

    betas: tuple[float, float]
    epsilon: float | Tensor

    def check(self) -> None:
        super().check()
        inside = len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas)
        require(inside, f"Expected betas, two numbers in [0, 1), got {self.betas}.")
        AT_LEAST_0.check(self, "epsilon")

    def update(self, g: Tensor, *, lr: float | Tensor, theta: Tensor | None) -> Tensor:
        m = self._mean("first_moment", self.betas[0], g)
        s = self._mean("second_moment", self.betas[1], g.square())
        v = lr * m / (s.sqrt() + beside(self.epsilon))
        return v if self.active is None else torch.where(self.active_mask(g), v, 0.0)

    def _mean(self, name: str, beta: float, value: Tensor) -> Tensor:
        """The bias-corrected mean: over the weight gathered, `1 - beta^t`, by parameter, for a head counts its own steps only."""
        mean = self._gather(name, beta, value, value)
        return mean / self._gather(f"{name}_weight", beta, value.new_ones(()), value)

    def _gather(self, name: str, beta: float, value: Tensor, like: Tensor) -> Tensor:
        old = self.vectors.get(name)
        old = torch.zeros_like(like) if old is None else old
        new = torch.lerp(old, value, 1 - beta)
        self.vectors[name] = new if self.active is None else torch.where(self.active_mask(like), new, old)
        return self.vectors[name]


@final
class Adam(ContinualOptimizer):
    """Adam: nothing is kept of old tasks but its moments.

    Args:
        model: the model to train.
        lr: eta, the learning rate.
        betas: how much of the means of the gradient and of its square is kept each step.
        epsilon: added to the root of the second, so that nothing is divided by zero.
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
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        momentum: float = 0.0,
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        method = AdamMethod(momentum=momentum, betas=betas, epsilon=epsilon)
        super().__init__(model, lr, method, first_task, predict, likelihood, groups, generator)
