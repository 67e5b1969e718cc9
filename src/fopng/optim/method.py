"""What every method is: a gradient in, a step out, and what is kept between tasks. Mathematics on `[..., p]`, no model."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from fopng.core.layout import ParamLayout
from fopng.curvature.metric import Identity, Metric
from fopng.gradients.stored import StoredGradients
from fopng.memory.projection import Projector, Remover
from fopng.memory.replay_samples import Rehearser, SampleMemory
from fopng.optim.ranges import NOT_THE_WHOLE
from fopng.optim.task_data import TaskData as TaskData
from fopng.parallel.collectives import ALONE, Peers


def beside(setting: float | Tensor) -> float | Tensor:
    """A setting as it multiplies vectors `[..., p]`: a number, or one a replica `[..., 1]`."""
    return setting.unsqueeze(-1) if isinstance(setting, Tensor) else setting


@dataclass(kw_only=True)
class Method(ABC):
    """A method's settings and state. Numeric settings are numbers, or one a replica `[...]`.

    Args:
        momentum: how much of the running sum of gradients is kept each step; 0 for none.

    Attributes:
        vectors: state that speaks of the parameters, `[..., p]`, and grows with them.
        peers: the processes that share the run.
        matrices: state of any other shape, `[..., *]` (the factors of a layer), named by the method.
    """

    momentum: float | Tensor
    vectors: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)
    matrices: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)
    memory: StoredGradients | None = field(default=None, init=False, repr=False)
    samples: SampleMemory | None = field(default=None, init=False, repr=False)
    active: frozenset[str] | None = field(default=None, init=False, repr=False)
    peers: Peers = field(default=ALONE, init=False, repr=False)
    layout: ParamLayout = field(init=False, repr=False)
    _mask: Tensor | None = field(default=None, init=False, repr=False)

    needs_fisher: ClassVar[bool] = False
    """Whether a step needs the new task's Fisher."""
    estimates: ClassVar[bool] = False
    """Whether the end of a task asks for its data, although there is no memory of gradients."""
    own_start: ClassVar[bool] = True
    """Whether the method itself trains the first task, when nothing else is asked for."""
    scalar_rate: ClassVar[bool] = False
    """Whether one learning rate must hold for all parameters."""
    matrices_of_inputs: ClassVar[bool] = False
    """Whether `matrices` speak of the inputs of layers alone, whatever their outputs."""
    watches: ClassVar[bool] = False
    """Whether it must see the steps of another optimizer that learns the first task."""

    @property
    def needs_parameters(self) -> bool:
        """Whether a step needs the parameters."""
        return False

    @property
    def missing(self) -> str | None:
        """What a step needs and `refresh` gives, in words; None when it is there."""
        return "the new task's Fisher" if self.needs_fisher and "fisher_new" not in self.vectors else None

    def watch(self, g: Tensor, v: Tensor) -> None:
        """See a step `v` that another optimizer took (subtracted) at the gradient `g`, `[..., p]` both."""
        return

    def follow(self, theta: Tensor) -> None:
        """See the parameters before a step, `[..., p]`, if the method needs them; what it keeps of them knows no gradient."""
        return

    def rehearse(self, rehearser: Rehearser) -> None:
        """Ask for gradients on samples of the method's own, before `gradient` is called."""
        return

    def gradient(self, g: Tensor, theta: Tensor | None) -> Tensor:
        """The gradient of what the method minimises, from that of the loss: `[..., p] -> [..., p]`."""
        return g

    @abstractmethod
    def update(self, g: Tensor, *, lr: float | Tensor, theta: Tensor | None) -> Tensor:
        """Turn a gradient into the step to subtract: `[..., p] -> [..., p]`.

        Args:
            g: the gradient, momentum included; zero where a parameter takes no part.
            lr: eta, a number, one a replica `[..., 1]`, or one a parameter `[p]` unless `scalar_rate`.
            theta: the parameters, for methods that need them.
        """

    def check(self) -> None:
        """Raise for a setting outside its range."""
        NOT_THE_WHOLE.check(self, "momentum")

    @property
    def variant(self) -> str:
        """Settings that a state is bound to, in words: what is stored would mean something else under others."""
        return "no such settings"

    def refresh(self, task: TaskData) -> None:
        """Learn about the new task, once an epoch."""
        return

    def end_task(self, task: TaskData) -> None:
        """Keep what the method needs of a task that is done."""
        return

    def forget_task(self) -> None:
        """Drop what speaks of the task at hand alone."""
        return

    def accumulate(self, g: Tensor) -> Tensor:
        """Add a gradient to the running sum, `m <- momentum m + g`, and return that."""
        if isinstance(self.momentum, float | int) and self.momentum == 0:
            return g
        rate = beside(self.momentum)
        old = self.vectors.get("momentum")
        total = g if old is None else rate * old + g
        if self.active is not None and old is not None:
            total = torch.where(self.active_mask(g), total, old)
        self.vectors["momentum"] = total
        return total if self.active is None else total * self.active_mask(g)

    def attach(self, layout: ParamLayout) -> None:
        """Work on these parameters from now on; those that are new start from zero."""
        old = getattr(self, "layout", None)
        self.layout = layout
        if old is not None and old != layout:
            self.vectors = {name: layout.carry(value, old) for name, value in self.vectors.items()}
            if self.memory is not None:
                self.memory.relayout(layout)
        self.forget_derived()

    def set_active(self, names: Collection[str] | None) -> None:
        """Say which parameters take part in this task (None: all); the others (other tasks' heads) stay where they are."""
        chosen = None if names is None or len(names) == len(self.layout.names) else frozenset(names)
        if chosen != self.active:
            self.active = chosen
            self.forget_derived()

    def active_mask(self, like: Tensor) -> Tensor:
        """Which parameters take part, `[p]`."""
        if self._mask is None:
            mask = torch.zeros(self.layout.size, dtype=torch.bool, device=like.device)
            for name in self.layout.names:
                mask[self.layout.slices[name]] = self.active is None or name in self.active
            self._mask = mask
        return self._mask

    def forget_derived(self) -> None:
        """Drop whatever is computed from the state and would be stale."""
        self._mask = None

    @property
    def changing(self) -> list[dict[str, Tensor]]:
        """The state that a step may replace, tensor by tensor."""
        return [self.vectors, self.matrices, *([] if self.samples is None else [self.samples.counters])]

    def move(self, like: Tensor, parameter: Tensor) -> None:
        """Bring the state to the device and precision of `like`, if it is not there, and samples to those of a parameter."""
        stored = [self.memory.like] if self.memory is not None and self.memory.count else []
        held = [*self.vectors.values(), *self.matrices.values(), *stored]
        if any((tensor.device, tensor.dtype) != (like.device, like.dtype) for tensor in held):
            self.load_state_dict(self.state_dict(), self.layout, like)
        if self.samples is not None:
            self.samples.follow(parameter)

    @property
    def projector(self) -> Projector | None:
        """What projects, for methods that do."""
        return None

    @property
    def remover(self) -> Remover | None:
        """What takes something away from the gradient; None while there is nothing to take away."""
        projector = self.projector
        return None if projector is None or projector.basis.count == 0 else projector

    def step_metric(self) -> Metric:
        """The metric in which a step has its length."""
        return Identity()

    def matrix_numbers(self) -> int:
        """About how many numbers of other shapes than the parameters' a run holds at a time, for planning."""
        return 0

    @property
    def nbytes(self) -> int:
        """Bytes of the method's state."""
        held = sum(t.numel() * t.element_size() for t in (*self.vectors.values(), *self.matrices.values()))
        kept = 0 if self.samples is None else self.samples.nbytes
        return held + kept + (0 if self.memory is None else self.memory.nbytes)

    def state_dict(self) -> dict[str, Any]:
        """The state, as tensors."""
        memory = None if self.memory is None else self.memory.state_dict()
        samples = None if self.samples is None else self.samples.state_dict(self.peers)
        return {"vectors": dict(self.vectors), "matrices": dict(self.matrices), "memory": memory, "samples": samples}

    def load_state_dict(self, state: dict[str, Any], layout: ParamLayout, like: Tensor) -> None:
        """Take a state over, onto the device and precision of `like`.

        Args:
            state: what `state_dict` gave.
            layout: the parameters that it speaks of.
            like: a vector of the kind to hold.
        """
        current = self.layout
        self.layout = layout
        self.vectors = {name: value.to(like) for name, value in state["vectors"].items()}
        self.matrices = {name: value.to(like) for name, value in state["matrices"].items()}
        if self.memory is not None and state["memory"] is not None:
            self.memory = self.memory.empty(layout)
            self.memory.load_state_dict(state["memory"], like)
        if self.samples is not None and state["samples"] is not None:
            self.samples.load_state_dict(state["samples"], like, self.peers)
        self.attach(current)
