"""Methods that pull parameters back to where the last task left them, each as hard as it mattered."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Generic

from fopng.core.tree import node
from fopng.core.vector import Vector
from fopng.optim.method import Method, R, State, Step
from fopng.optim.settings import AT_LEAST_0, settings


@node
@dataclass(frozen=True)
class PenaltyState(State):
    """What parameters are pulled with and where to.

    Args:
        weights: W, how much each parameter mattered.
        anchor: `theta*`, where the last task left them.
    """

    weights: Vector | None = None
    anchor: Vector | None = None


@settings
class Penalty(Method[PenaltyState, R], Generic[R]):
    """`v = eta (g + slope strength W (theta - theta*))`: the gradient of a quadratic penalty."""

    strength: Annotated[float, AT_LEAST_0, "lambda, the weight of the penalty."] = 1.0

    state_type: ClassVar[type[State]] = PenaltyState
    slope: ClassVar[float] = 1.0
    """1 where the penalty is `strength / 2 sum W (theta - theta*)^2`, 2 where it is twice that."""

    def gradient(self, g: Vector, step: Step[PenaltyState, R]) -> Vector:
        weights, anchor = step.state.weights, step.state.anchor
        if weights is None or anchor is None:
            return g
        moved = step.theta.only(g.parts) - anchor.only(g.parts)
        if self.tolerance is None:
            return g.addcmul(moved, weights, self.strength * self.slope)
        # steered it may be strong: an implicit step does not overshoot
        pull = weights.only(g.parts) * (self.strength * self.slope)
        return g + moved * (pull / (pull * step.lr).shifted(1.0))
