"""What methods share that keep the old tasks' Fisher as a Kronecker product for each layer."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from fopng.core.likelihood import Signals
from fopng.core.tree import node
from fopng.core.vector import Vector, broadcast
from fopng.curvature.factors import Factor, size
from fopng.curvature.kronecker import KroneckerOperator, LayerBasis, Shrinkage
from fopng.curvature.moments import LayerMoments, Moments, moment_numbers, sum_of
from fopng.gradients.layers import Names
from fopng.optim.coverage import share_of, warn_if_uncovered
from fopng.optim.method import Method, Prepared, Running, State, Step
from fopng.optim.settings import AT_LEAST_0, COUNT_OR_ALL, settings
from fopng.optim.task import Task


@node
@dataclass(frozen=True)
class KroneckerState(State):
    """`F_old`, the sum over all tasks that are done: a Kronecker product in each layer, diagonal elsewhere.

    `sum_t A_t kron G_t` is taken for `A kron G` with `A = sum_t A_t` and `G` the mean of the `G_t`, weighted with the traces of
    the `A_t`: the sum's trace, and its partial trace over the inputs, are exact.

    Args:
        moments: A and G of each layer; the diagonal of everything else. None before any task is done.
        tasks: how many tasks are done.
    """

    moments: Moments | None = None
    tasks: int = 0


K = TypeVar("K", bound=KroneckerState)


@settings
class KroneckerMemory(Method[K, Running], Generic[K]):
    """A method that holds updates back by `(I + s F_old)^-1`."""

    strength: Annotated[float, AT_LEAST_0, "s, how much `F_old` weighs against the identity."] = 30.0
    signals: Annotated[
        Signals,
        'what is sent back from the outputs for the moments: the score of "sampled" (the model\'s), "observed" (the data\'s) or '
        '"expected" (all) labels, as in a Fisher, or "normal" (noise of variance one: all outputs count alike).',
    ] = "sampled"
    fisher_samples: Annotated[
        int | None, COUNT_OR_ALL, "samples the moments are taken on, drawn anew each time; None for all."
    ] = 2000
    rank: Annotated[
        int | None,
        COUNT_OR_ALL,
        "eigenvectors of a layer's inputs that are kept, the others share one eigenvalue; None for all.",
    ] = 128

    state_type: ClassVar[type[State]] = KroneckerState
    # a layer is held back as one: rates that differ within it come first, so that nothing bends what is left
    rate_last: ClassVar[bool] = True

    @property
    def variant(self) -> str:
        return f"signals={self.signals!r}"

    def end_task(self, state: K, running: Running, task: Task) -> tuple[K, Running]:
        moments = self.measure(task)
        if not state.tasks and moments.layers:
            warn_if_uncovered(moments, self.about.title)
        return self.remembered(state, moments), running

    def coverage(self, state: K) -> float | None:
        return None if state.moments is None else share_of(state.moments)

    def measure(self, task: Task) -> Moments:
        """The moments of the task at hand."""
        return task.moments(self.signals, self.fisher_samples)

    def remembered(self, state: K, moments: Moments) -> K:
        """Add the moments of one more task to those of the others."""
        old = state.moments
        total = moments if old is None else Moments(_summed(old.layers, moments.layers), old.rest + moments.rest)
        return replace(state, moments=total, tasks=state.tasks + 1)

    def weight(self, state: K) -> float | Tensor:
        """What the sum over old tasks is multiplied with: the strength, in units of the method's own."""
        return self.strength

    def prepare(self, state: K, names: Collection[str]) -> Prepared:
        if state.moments is None:
            return Prepared()
        s, old = self.weight(state), self.old_fisher(state.moments, names)
        return Prepared(Shrinkage(old.map(lambda values: (1 + broadcast(s, values) * values).reciprocal())))

    def old_fisher(self, moments: Moments, names: Collection[str]) -> KroneckerOperator:
        """`F_old` in the parameters of these names; eigenvectors are worked out again only where a layer's moments changed."""
        layers = {
            layer: self._basis(layer, own, names)
            for layer, own in moments.layers.items()
            if not names_apart(layer, names)
        }
        return KroneckerOperator(layers, moments.rest)

    def _basis(self, layer: Names, moments: LayerMoments, names: Collection[str]) -> LayerBasis:
        # of a layer of which only a part moves, that part's Fisher is inverted; whatever the strength is at the moment
        weight, bias = layer[0] in names, len(layer) > 1 and layer[-1] in names
        known, key = moments.bases, (type(self), self.rank, weight, bias)
        if key not in known:
            own = moments if bias or len(layer) == 1 else moments.of_one(weight=True)
            own = own if weight else own.of_one(weight=False)
            even = replace(own, signals=self.evened(own.signals))
            known[key] = LayerBasis.of(even, bias=bias, rank=self.rank)
        found: LayerBasis = known[key]
        return found

    def evened(self, signals: Factor) -> Factor:
        """The `G [..., o, o]` that is held on to, given the one that was measured; its trace is the same."""
        return signals

    def bend(self, v: Vector, step: Step[K, Running]) -> Vector:
        return v if step.prepared.remover is None else step.prepared.remover(v)

    def planned_numbers(self, shapes: Mapping[str, torch.Size]) -> int:
        # what is kept, what a task adds to it, and both while they are taken apart
        return 4 * moment_numbers(shapes)


def names_apart(layer: Names, names: Collection[str]) -> bool:
    """Whether none of a layer's parameters is among these."""
    return not any(name in names for name in layer)


def used_parameters(moments: Moments, theta: Vector) -> Vector:
    """1 for the parameters that an old task has used, 0 or absent for others."""
    inside = {name for layer in moments.layers for name in layer}
    whole = {name: torch.ones_like(part) for name, part in theta.parts.items() if name in inside}
    rest = {name: (part > 0).to(part) for name, part in moments.rest.parts.items() if name not in inside}
    return Vector({**rest, **whole}, theta.lead)


def _summed(old: dict[Names, LayerMoments], new: dict[Names, LayerMoments]) -> dict[Names, LayerMoments]:
    found = dict(old)
    for layer, own in new.items():
        # a layer whose bias was frozen in some task knows nothing about it from there
        known = next((names for names in found if names[0] == layer[0]), None)
        before = None if known is None else found.pop(known)
        wide = max(size(own.inputs), 0 if before is None else size(before.inputs))
        names = layer if known is None else max(known, layer, key=len)
        found[names] = own if before is None else sum_of(before.widened(wide), own.widened(wide))
    return found
