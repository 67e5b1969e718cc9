"""Adam (Kingma and Ba, 2015), with the life cycle of the others."""

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, final

import torch
from torch import Tensor

from fopng.core.tree import node
from fopng.core.typed import fits
from fopng.core.vector import Vector
from fopng.optim.method import About, Method, Needs, Running, State, Step
from fopng.optim.settings import AT_LEAST_0, require, settings


@final
@node
@dataclass(frozen=True)
class Mean:
    """A running mean of vectors, with the weight that each parameter has gathered: a head counts its own steps only.

    Args:
        total: the weighted sum.
        weight: `1 - beta^t` after t steps, for each row of each parameter: rows that are new count their own steps only.
    """

    total: Vector = field(default_factory=lambda: Vector({}))
    weight: Vector = field(default_factory=lambda: Vector({}))

    def value(self, like: Vector) -> Vector:
        """The mean of the parameters of another vector, without the bias to zero of its start."""
        return self.total.only(like.parts) / self.weight

    def gathered(self, value: Vector, beta: float) -> "Mean":
        """The mean after one more vector; what that has no part of stays."""
        new = {name: part for name, part in value.parts.items() if name not in self.weight.parts}
        rows = {name: _row_zeros(part, part.shape[value.lead :]) for name, part in new.items()}
        total, weight = self.total.extended(value), self.weight.updated(Vector(rows)) if rows else self.weight
        here = weight.only(value.parts) * beta
        return Mean(
            total.updated(total.only(value.parts).lerp(value, 1 - beta)), weight.updated(here.shifted(1 - beta))
        )


def _row_zeros(like: Tensor, shape: torch.Size) -> Tensor:
    """A 0 for each row of a parameter, in as many dimensions."""
    return like.new_zeros(shape[:1] + (1,) * (len(shape) - 1))


@final
@node
@dataclass(frozen=True)
class AdamRunning(Running):
    """The means of the gradient and of its square."""

    first: Mean | None = None
    second: Mean | None = None


@final
@settings
class Adam(Method[State, AdamRunning]):
    """Adam, `v = eta m / (sqrt(s) + epsilon)`, m and s the means of the gradient and of its square: nothing else is kept."""

    about: ClassVar[About] = About("adam", "Adam", 2015, "Kingma, Ba", "nothing")
    running_type: ClassVar[type[Running]] = AdamRunning

    betas: Annotated[tuple[float, float], "how much of the two means is kept each step."] = (0.9, 0.999)
    epsilon: Annotated[float, AT_LEAST_0, "added to the root of the second, so that nothing is divided by zero."] = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        pair = fits(self.betas, tuple[float, float])
        inside = pair and all(0 <= beta < 1 for beta in self.betas)
        require(inside, f"Expected betas, two numbers in [0, 1), got {self.betas}.")

    @property
    def needs(self) -> Needs:
        return Needs(data=False, moments=True)

    def observe(self, running: AdamRunning, g: Vector) -> AdamRunning:
        first, second = (running.first or Mean(), running.second or Mean())
        return replace(running, first=first.gathered(g, self.betas[0]), second=second.gathered(g * g, self.betas[1]))

    def base(self, g: Vector, step: Step[State, AdamRunning]) -> Vector:
        first, second = step.running.first, step.running.second
        assert first is not None
        assert second is not None
        return first.value(g) * step.lr / second.value(g).map(torch.sqrt).shifted(self.epsilon)
