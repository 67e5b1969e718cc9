"""Methods that pull parameters back to where the last task left them, each as hard as it mattered."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fopng.optim.method import Method, beside
from fopng.optim.ranges import AT_LEAST_0


@dataclass(kw_only=True)
class AnchoredMethod(Method):
    """`v = eta (g + slope strength W (theta - theta*))`: the gradient of a quadratic penalty.

    Args:
        strength: lambda, the weight of the penalty.
    """

    strength: float | Tensor

    weights: ClassVar[str] = "importance"
    """The vector that holds W, `[..., p]`; `anchor` holds `theta*`."""
    slope: ClassVar[float] = 1.0
    """1 where the penalty is `strength / 2 sum W (theta - theta*)^2`, 2 where it is twice that."""

    @property
    def needs_parameters(self) -> bool:
        return True

    def check(self) -> None:
        super().check()
        AT_LEAST_0.check(self, "strength")

    def gradient(self, g: Tensor, theta: Tensor | None) -> Tensor:
        if self.weights not in self.vectors:
            return g
        assert theta is not None
        moved = theta - self.vectors["anchor"]
        if self.active is not None:
            moved = moved * self.active_mask(g)
        strength = self.slope * self.strength
        if isinstance(strength, Tensor):
            return torch.addcmul(g, moved, self.vectors[self.weights] * beside(strength))
        return torch.addcmul(g, moved, self.vectors[self.weights], value=strength)

    def update(self, g: Tensor, *, lr: float | Tensor, theta: Tensor | None) -> Tensor:
        return lr * g
