"""Natural Continual Learning (Kao et al., 2021)."""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, TypeAlias, final

from fopng.core.tree import node
from fopng.core.vector import Vector
from fopng.curvature.moments import Moments
from fopng.optim.kronecker_base import KroneckerMemory, KroneckerState, used_parameters
from fopng.optim.method import About, Running, State, Step
from fopng.optim.settings import ABOVE_0, require, settings
from fopng.optim.task import Task

Precision: TypeAlias = Literal["kfac", "diagonal"]
"""How the precision of old tasks is approximated. Eigenvalues of EKFAC belong to one task's eigenvectors."""


@final
@node
@dataclass(frozen=True)
class NCLState(KroneckerState):
    """The old tasks' precision, and where the last one left the parameters it has used."""

    anchor: Vector | None = None
    used: Vector | None = None


@final
@settings
class NCL(KroneckerMemory[NCLState]):
    """Natural Continual Learning: natural gradients in the metric of the old tasks' precision, with a pull to the old parameters.

    `v = (eta / s) L^-1 (g + L (theta - theta*))` with the prior precision `L = F_old + I / s`: it minimises the new loss plus
    `|theta - theta*|^2 / 2` in that metric. `F_old` is Kronecker-factored; tasks are added up
    factor by factor (docs/explanation/fopng-k.md).
    """

    about: ClassVar[About] = About(
        "ncl", "Natural continual learning", 2021, "Kao et al.", "moments of layers, weights"
    )
    state_type: ClassVar[type[State]] = NCLState
    default_lr: ClassVar[float | None] = 0.05
    lr_means: ClassVar[str] = "eta, the learning rate; Kao's gamma is `lr / strength`."

    strength: Annotated[
        float,
        ABOVE_0,
        "s, the inverse of the prior precision that every parameter starts with: how freely it may move where no old task "
        "holds it.",
    ] = 10_000.0
    metric: Annotated[
        Precision, 'how `F_old` is approximated: "kfac" (a Kronecker product for each layer) or "diagonal".'
    ] = "kfac"

    def __post_init__(self) -> None:
        super().__post_init__()
        sent = self.metric == "kfac" or self.signals != "normal"
        require(sent, "Expected signals of labels with metric='diagonal', got 'normal'. Use 'sampled'.")

    @property
    def variant(self) -> str:
        return f"{super().variant}, metric={self.metric!r}"

    def measure(self, task: Task) -> Moments:
        if self.metric == "diagonal" and self.signals != "normal":
            return Moments({}, task.fisher(self.signals, self.fisher_samples))
        return super().measure(task)

    def end_task(self, state: NCLState, running: Running, task: Task) -> tuple[NCLState, Running]:
        (state, running), theta = super().end_task(state, running, task), task.parameters()
        assert state.moments is not None
        return replace(state, anchor=theta, used=used_parameters(state.moments, theta)), running

    def bend(self, v: Vector, step: Step[NCLState, Running]) -> Vector:
        state, left = step.state, super().bend(v, step)
        if state.anchor is None or state.used is None:
            return left
        # parameters that no old task has used have no old value to be pulled to
        pull = (step.theta.only(v.parts) - state.anchor.only(v.parts)) * state.used / self.strength
        return left + (pull if self.rated_after(step.lr) else pull * step.lr)
