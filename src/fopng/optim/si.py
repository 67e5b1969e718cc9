"""Synaptic Intelligence (Zenke et al., 2017)."""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, final

from fopng.core.tree import node
from fopng.core.vector import Vector
from fopng.optim.method import About, Needs, Running
from fopng.optim.penalty_base import Penalty, PenaltyState
from fopng.optim.settings import ABOVE_0, AT_LEAST_0, settings
from fopng.optim.task import Task


@final
@node
@dataclass(frozen=True)
class SIRunning(Running):
    """The way of the task at hand.

    Args:
        path: w, by how much each parameter lowered the loss.
        moved: D, how far it moved.
    """

    path: Vector | None = None
    moved: Vector | None = None


@final
@settings
class SI(Penalty[SIRunning]):
    """Synaptic Intelligence: SGD, with a pull towards the old parameters where they lowered the loss of old tasks the most.

    `W <- max(0, W + w / (D^2 + damping))` at the end of a task (eq. 4, 5), with w the sum over the task's steps of `g v`. `g` is
    the gradient of the loss alone, and the first task counts whoever learns it.
    """

    about: ClassVar[About] = About("si", "Synaptic Intelligence", 2017, "Zenke et al.", "importances, weights")
    running_type: ClassVar[type[Running]] = SIRunning
    slope: ClassVar[float] = 2.0

    strength: Annotated[float, AT_LEAST_0, "c, the weight of the penalty."] = 1.0
    damping: Annotated[
        float,
        ABOVE_0,
        "xi, added to the squared distance that a parameter moved in a task, before it divides its importance.",
    ] = 1e-3

    @property
    def needs(self) -> Needs:
        return Needs(data=False, steps=True)

    def watch(self, running: SIRunning, g: Vector, v: Vector) -> SIRunning:
        path = v * g if running.path is None else running.path.addcmul(v, g)
        return replace(running, path=path, moved=v if running.moved is None else running.moved + v)

    def end_task(self, state: PenaltyState, running: SIRunning, task: Task) -> tuple[PenaltyState, SIRunning]:
        theta = task.parameters()
        w, D, W = (old or theta.zeros() for old in (running.path, running.moved, state.weights))
        weights = (W + w / (D * D).shifted(self.damping)).map(lambda part: part.clamp(min=0))
        return PenaltyState(weights, theta), replace(running, path=None, moved=None)
