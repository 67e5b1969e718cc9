"""What every method is: settings, what it keeps of old tasks, and pure functions for a step and for the ends of tasks."""

from abc import ABC
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar, final

import torch
from torch import Tensor

from fopng.core.tree import node
from fopng.core.vector import Vector
from fopng.curvature.metric import Identity, Metric
from fopng.memory.gradients import GradientMemory
from fopng.memory.probe import TaskProbe
from fopng.memory.projection import Projector, Remover
from fopng.memory.replay_samples import Rehearser
from fopng.optim.settings import (
    ABOVE_0_OR_NONE,
    AT_LEAST_0,
    SHARE_BELOW_1,
    check_settings,
    require,
    settings,
    settings_of,
)
from fopng.optim.task import Task
from fopng.optim.tolerance import Steering


@final
@dataclass(frozen=True)
class About:
    """What a method is known by.

    Args:
        name: what a user types.
        title: its name in full.
        year: when it was published.
        paper: by whom.
        keeps: what it keeps of old tasks, in words.
        keeps_data: whether samples of old tasks are among that.
    """

    name: str
    title: str
    year: int
    paper: str
    keeps: str
    keeps_data: bool = False


@final
@dataclass(frozen=True)
class Needs:
    """What a method needs of whoever drives it, an optimizer or the batched engine.

    Args:
        refresh: what `refresh` must have given before a step, in words; None for nothing.
        data: whether the end of a task looks at the task's data.
        moments: whether it keeps means over gradients (`observe`).
        steps: whether it is shown every step, whoever takes it (`watch`).
        samples: whether it rehearses samples of its own (`recall`).
        one_rate: whether one learning rate must hold for all parameters.
        plain_start: whether plain SGD learns the first task, when nothing else is asked for.
    """

    refresh: str | None = None
    data: bool = True
    moments: bool = False
    steps: bool = False
    samples: bool = False
    one_rate: bool = False
    plain_start: bool = False


@node
@dataclass(frozen=True)
class State:
    """What a method keeps between tasks, and of the task at hand since `refresh`; no step changes it.

    Args:
        probes: what stands for the inputs of each old task, where a tolerance or a rehearsal is asked for.
    """

    probes: tuple[TaskProbe, ...] = field(default=(), kw_only=True)

    @property
    def memory(self) -> GradientMemory | None:
        """The stored gradients, for methods that store some."""
        return None


@node
@dataclass(frozen=True)
class Running:
    """What each step changes.

    Args:
        momentum: the running sum of gradients.
        steering: what old tasks have lost, and what follows from it.
    """

    momentum: Vector | None = None
    steering: Steering | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Prepared:
    """What is worked out from a state once, for many steps.

    Args:
        remover: what takes something away from the gradient or the update, if anything does.
        metric: in which a step has its length.
    """

    remover: Remover | None = None
    metric: Metric = field(default_factory=Identity)

    @property
    def projector(self) -> Projector | None:
        """The remover, where it is a projection with a Gram matrix."""
        return self.remover if isinstance(self.remover, Projector) else None


@final
@dataclass(slots=True)
class Taken:
    """A step that was worked out.

    Args:
        raw: the gradient of the loss.
        g: what the method made of it before it took anything away: momentum, a penalty.
        v: the update to subtract.
        prepared: what it was made with.
    """

    raw: Vector
    g: Vector
    v: Vector
    prepared: Prepared

    @property
    def removed_fraction(self) -> Tensor:
        """`|g - P g| / |g|`, `[*lead]`: how much of the gradient was taken away; zero where nothing takes anything away."""
        g, remover = self.g, self.prepared.remover
        return g.like.new_zeros(g.replicas) if remover is None else remover.removed(g).norm() / g.norm()


S = TypeVar("S", bound=State)
R = TypeVar("R", bound=Running)


@dataclass(slots=True)
class Step(Generic[S, R]):
    """What the functions of a step may look at.

    Args:
        state: what is kept.
        running: what steps change, after this gradient was seen.
        prepared: what was worked out from the state, for the parameters that have a gradient.
        lr: eta, a number, one for each replica `[*lead]`, or one for each parameter.
        theta: the parameters.
        rehearsed: gradients on samples of the method's own, if it rehearsed.
    """

    state: S
    running: R
    prepared: Prepared
    lr: "float | Tensor | Vector"
    theta: Vector
    rehearsed: Vector | None


@settings
class Method(ABC, Generic[S, R]):
    """Settings and pure functions; what changes is passed in and returned.

    A step is made in three stages: `gradient` (of what the method minimises), `base` (the update that an optimizer makes of it:
    plain SGD unless the method brings its own) and `bend` (what the method leaves of the update).
    """

    momentum: Annotated[float, SHARE_BELOW_1, "how much of the running sum of gradients is kept each step."] = 0.0
    tolerance: Annotated[
        float | None,
        ABOVE_0_OR_NONE,
        "how much old tasks may lose, the mean: how far the answers now are from those at a task's end, in nats. The strength and "
        "the weight of the rehearsal follow, from where they are set; None leaves them there.",
    ] = None
    rehearse: Annotated[
        float,
        AT_LEAST_0,
        "the weight of answering inputs that stand for old ones as when their task ended, drawn anew without old data; 0 for none.",
    ] = 0.0

    about: ClassVar[About]
    state_type: ClassVar[type[State]] = State
    running_type: ClassVar[type[Running]] = Running
    default_lr: ClassVar[float | None] = None
    lr_means: ClassVar[str] = "eta, the learning rate."
    rate_last: ClassVar[bool] = False
    """Whether the learning rate multiplies what `bend` has left, instead of what `base` makes."""
    strength_is_weight: ClassVar[bool] = False
    """Whether the strength is the weight of a rehearsal, which too large does harm of its own."""

    def __post_init__(self) -> None:
        check_settings(self)
        require(
            self.tolerance is None or self.has_strength or self.rehearses,
            f"Expected rehearse above 0 with a tolerance, got {self.rehearse}: {type(self).__name__} has no strength that could be "
            "steered. Set rehearse=1.",
        )

    @property
    def has_strength(self) -> bool:
        """Whether something holds on to old tasks that can be stronger or weaker."""
        return "strength" in settings_of(type(self))

    def stronger(self, factor: Tensor) -> Self:
        """The method with its strength times a factor, `[*lead]`."""
        changed: dict[str, Any] = {"strength": factor * getattr(self, "strength")}  # noqa: B009
        return replace(self, **changed)

    @property
    def rehearses(self) -> bool:
        """Whether inputs that stand for old ones are rehearsed, in any of the runs."""
        return isinstance(self.rehearse, Tensor) or self.rehearse > 0

    @property
    def needs_probes(self) -> bool:
        """Whether something must stand for old inputs."""
        return self.tolerance is not None or self.rehearses

    @property
    def needs(self) -> Needs:
        """What it needs of whoever drives it."""
        return Needs()

    @property
    def variant(self) -> str:
        """Settings that a state is bound to, in words: what is kept would mean something else under others."""
        return "no such settings"

    # A step

    def prepare(self, state: S, names: Collection[str]) -> Prepared:
        """Work out what many steps need, for parameters of these names."""
        return Prepared()

    def missing(self, state: S) -> bool:
        """Whether a step lacks what `refresh` gives."""
        return False

    def recall(self, state: S, running: R, rehearser: Rehearser) -> tuple[Vector | None, R]:
        """Ask for gradients on samples of the method's own."""
        return None, running

    def gradient(self, g: Vector, step: Step[S, R]) -> Vector:
        """The gradient of what the method minimises, from that of the loss."""
        return g

    def observe(self, running: R, g: Vector) -> R:
        """See a gradient, momentum included, before `base`."""
        return running

    def coverage(self, state: S) -> float | None:
        """The share of the parameters in matrices that have the method's own metric; None where it has none of its own."""
        return None

    def rated_after(self, lr: "float | Tensor | Vector") -> bool:
        """Whether a step is multiplied with the rate once it is bent: where all parameters have the same one."""
        return self.rate_last and not isinstance(lr, Vector)

    def base(self, g: Vector, step: Step[S, R]) -> Vector:
        """The update to subtract, from the gradient with its momentum: `eta g`."""
        return g if self.rated_after(step.lr) else g * step.lr

    def bend(self, v: Vector, step: Step[S, R]) -> Vector:
        """What is left of an update, so that old answers stay."""
        return v

    def watch(self, running: R, g: Vector, v: Vector) -> R:
        """See a step `v` that was subtracted at the gradient `g` of the loss, whoever took it."""
        return running

    # The ends of tasks

    def refresh(self, state: S, running: R, task: Task) -> tuple[S, R]:
        """Learn about the new task, once an epoch."""
        return state, running

    def end_task(self, state: S, running: R, task: Task) -> tuple[S, R]:
        """Keep what the method needs of a task that is done."""
        return state, running

    # What it measures, by name: runs keep it, their results and logs show it

    def measure_step(self, taken: Taken) -> dict[str, Tensor]:
        """Quantities of a step, `[*lead]`; a run keeps their mean over each task, without those that are not finite."""
        return {} if taken.prepared.remover is None else {"removed_fraction": taken.removed_fraction}

    def measure_task(self, state: S) -> dict[str, Tensor]:
        """Quantities of what is kept when a task has ended, `[*lead]`."""
        memory = state.memory
        return {} if memory is None or memory.error is None else {"compression_error": memory.error}

    # For planning

    def planned_numbers(self, shapes: Mapping[str, torch.Size]) -> int:
        """About how many numbers beside vectors of the parameters' size a run holds at a time."""
        return 0
