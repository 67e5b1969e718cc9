"""What methods share that keep what old tasks gave each layer, and move nothing along it."""

from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, final

import torch
import torch.nn.functional as F
from torch import Tensor

from fopng.core.tree import node
from fopng.core.vector import Vector
from fopng.curvature.moments import moment_numbers
from fopng.gradients.layers import Names
from fopng.memory.input_subspace import LayerwiseProjector, Subspace
from fopng.optim.method import Method, Prepared, Running, State, Step
from fopng.optim.settings import COUNT_OR_ALL, settings
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
    (docs/explanation/deviations.md, 21).
    """

    input_samples: Annotated[
        int | None,
        COUNT_OR_ALL,
        "samples whose inputs are looked at when a task ends, drawn anew each time; None for all.",
    ] = 300

    state_type: ClassVar[type[State]] = InputState

    @abstractmethod
    def learn(self, old: Subspace, moment: Tensor, tasks: int) -> Subspace:
        """What is kept of a layer, with what it was given in the latest task.

        Args:
            old: what was kept.
            moment: `A [*lead, i, i]`, the mean of `a a^T` over the latest task.
            tasks: how many tasks were done before.
        """

    def prepare(self, state: InputState, names: Collection[str]) -> Prepared:
        if not state.tasks:
            return Prepared()
        layers = {
            layer: own if all(name in names for name in layer) else own.of_one(weight=layer[0] in names)
            for layer, own in state.layers.items()
            if any(name in names for name in layer)
        }
        return Prepared(LayerwiseProjector(layers, state.frozen))

    def bend(self, v: Vector, step: Step[InputState, Running]) -> Vector:
        # the rate is in it: where it differs within a layer, it must not bend what is projected
        return v if step.prepared.remover is None else step.prepared.remover(v)

    def end_task(self, state: InputState, running: Running, task: Task) -> tuple[InputState, Running]:
        moments = task.input_moments(self.input_samples)
        reached = {name for block in task.gradients(1, "average") for layer in block.layers for name in layer}
        layers = dict(state.layers)
        for layer, own in moments.items():
            known = next((names for names in layers if names[0] == layer[0]), None)
            old = Subspace.empty(own.moment, own.form) if known is None else layers.pop(known)
            names = layer if known is None else max(known, layer, key=len)
            # a bias that is frozen now was given nothing to learn from
            missing = max(0, old.importance.shape[-1] - own.moment.shape[-1])
            moment = F.pad(own.moment, (0, missing, 0, missing))
            layers[names] = self.learn(old.with_bias(moment.shape[-1]), moment, state.tasks)
        inside = {name for layer in layers for name in layer}
        ones = task.parameters().map(torch.ones_like)
        frozen = state.frozen.updated(ones.only(reached)).without(inside)
        return InputState(layers, frozen, state.tasks + 1), running

    def planned_numbers(self, shapes: Mapping[str, torch.Size]) -> int:
        # in float64, while a layer is taken apart
        return 12 * moment_numbers(shapes)
