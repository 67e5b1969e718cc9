"""Gradient Projection Memory (Saha et al., 2021)."""

from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, final

import torch
from torch import Tensor

from fopng.core.tree import node
from fopng.core.vector import Vector
from fopng.curvature.moments import moment_numbers
from fopng.gradients.layers import Names
from fopng.memory.input_subspace import LayerwiseProjector, Subspace
from fopng.optim.method import About, Method, Needs, Prepared, Running, State, Step
from fopng.optim.settings import COUNT_OR_ALL, SHARE, SHARE_ABOVE_0, settings
from fopng.optim.task import Task


@final
@node
@dataclass(frozen=True)
class InputState(State):
    """What old tasks gave each layer.

    Args:
        layers: the directions of its inputs, by the names of its parameters.
        frozen: 1 for the parameters outside those layers that an old task has used.
        tasks: how many tasks are done.
    """

    layers: dict[Names, Subspace] = field(default_factory=dict)
    frozen: Vector = field(default_factory=lambda: Vector({}))
    tasks: int = 0


@settings
class InputMemory(Method[InputState, Running]):
    """`v = eta (g - g M Lambda M^T)`, layer by layer: nothing along what old tasks gave a layer.

    Parameters outside Linear and Conv layers (normalisations, embeddings) that an old task used do not move any more
    (docs/deviations.md, 21).
    """

    threshold: Annotated[
        float,
        SHARE_ABOVE_0,
        "epsilon, the share of the squared length of each layer's inputs that a task must leave in the memory.",
    ] = 0.95
    threshold_growth: Annotated[float, SHARE, "how much higher it is with each task, up to 1."] = 0.0
    input_samples: Annotated[
        int | None,
        COUNT_OR_ALL,
        "samples whose inputs are looked at when a task ends, drawn anew each time; None for all.",
    ] = 300

    state_type: ClassVar[type[State]] = InputState

    @property
    def needs(self) -> Needs:
        return Needs()

    @abstractmethod
    def weigh(self, values: Tensor, old: Tensor) -> Tensor:
        """The importance of directions, from their singular values in the latest task and their importance before."""

    def prepare(self, state: InputState, names: Collection[str]) -> Prepared:
        if not state.tasks:
            return Prepared()
        layers = {layer: own for layer, own in state.layers.items() if any(name in names for name in layer)}
        return Prepared(LayerwiseProjector(layers, state.frozen))

    def bend(self, v: Vector, step: Step[InputState, Running]) -> Vector:
        # the rate is in it: where it differs within a layer, it must not bend what is projected
        return v if step.prepared.remover is None else step.prepared.remover(v)

    def end_task(self, state: InputState, running: Running, task: Task) -> tuple[InputState, Running]:
        moments = task.input_moments(self.input_samples)
        reached = {name for block in task.gradients(1, "average") for layer in block.layers for name in layer}
        threshold = torch.as_tensor(self.threshold + self.threshold_growth * state.tasks).clamp(max=1.0)
        layers = dict(state.layers)
        for layer, moment in moments.items():
            # a layer whose bias was frozen before knows nothing about that
            old = layers.pop(layer, None) or layers.pop(layer[:1], None) or Subspace.empty(moment)
            layers[layer] = old.widened(moment.shape[-1]).learnt(moment, threshold=threshold, weigh=self.weigh)
        inside = {name for layer in layers for name in layer}
        ones = task.parameters().map(torch.ones_like)
        frozen = state.frozen.updated(ones.only(reached)).without(inside)
        return InputState(layers, frozen, state.tasks + 1), running

    def planned_numbers(self, shapes: Mapping[str, torch.Size]) -> int:
        # in float64, while a layer is taken apart
        return 12 * moment_numbers(shapes)


@final
@settings
class GPM(InputMemory):
    """Gradient Projection Memory: SGD on what is orthogonal to the inputs that old tasks gave each layer.

    When a task ends, the main directions of what each Linear and Conv layer was given join its memory, which is never larger than
    the layer is wide, squared. Gradients of scores, labels and Fishers play no part.
    """

    about: ClassVar[About] = About(
        "gpm", "Gradient projection memory", 2021, "Saha et al.", "directions of layers' inputs"
    )

    def weigh(self, values: Tensor, old: Tensor) -> Tensor:
        return torch.ones_like(values)
