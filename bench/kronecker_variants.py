"""Variants of `fopng-k` that were tried and are no options (docs/results/fopng-k-study.md); `kronecker_trials.py` measures them.

They are written for one model at a time with Linear layers: enough to find out whether they are worth more.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import torch
from fopng.optim.weight_averaging import AveragingRunning
from torch import Tensor

from fopng.core.tree import node
from fopng.core.vector import Vector, broadcast
from fopng.curvature.kronecker import KroneckerOperator, LayerBasis, Shrinkage
from fopng.curvature.moments import LayerMoments, Moments
from fopng.gradients.layers import Names
from fopng.optim.fopng_k import FOPNGKState, KroneckerFOPNG
from fopng.optim.kronecker_base import names_apart
from fopng.optim.method import Prepared, Running, State, Step
from fopng.optim.settings import ABOVE_0, AT_LEAST_0, settings
from fopng.optim.task import Task


@node
@dataclass(frozen=True)
class CorrectedState(FOPNGKState):
    """The old tasks' moments, and the eigenvectors of their sum with corrected eigenvalues."""

    kept: dict[Names, LayerBasis] = field(default_factory=dict)


@settings
class Corrected(KroneckerFOPNG):
    """Eigenvalues as in EKFAC: the mean squares of a task's gradients along the eigenvectors of the sum, taken at its end.

    When the eigenvectors turn from V to U, those of old tasks become the diagonal of their matrix along the new ones:
    `(U_g^T V_g)^2 D ((U_a^T V_a)^2)^T`, squares entry by entry. Its trace stays.
    """

    state_type: ClassVar[type[State]] = CorrectedState

    def keep(self, state: CorrectedState, task: Task) -> CorrectedState:
        state = super().keep(state, task)
        new = {names: LayerBasis.of(own, bias=len(names) > 1) for names, own in state.moments.layers.items()}
        squares = task.squares_along(new, self.signals, self.fisher_samples)
        kept = {}
        for names, own in new.items():
            values, old = squares[names], state.kept.get(names)
            if old is not None:
                turned_a, turned_g = own.inputs.mT @ old.inputs, own.signals.mT @ old.signals
                values = values + turned_g.square() @ old.values @ turned_a.square().mT
            kept[names] = replace(own, values=values)
        return replace(state, kept=kept)

    def prepare(self, state: CorrectedState, names: Collection[str]) -> Prepared:
        if state.moments is None:
            return Prepared()
        s = self.weight(state)
        layers = {layer: self.cut(own) for layer, own in state.kept.items() if not names_apart(layer, names)}
        old = KroneckerOperator(layers, state.moments.rest)
        return Prepared(Shrinkage(old.map(lambda own: (1 + broadcast(s, own) * own).reciprocal())))

    def cut(self, own: LayerBasis) -> LayerBasis:
        """A layer's Fisher with `rank` eigenvectors of the inputs; the others share one eigenvalue."""
        size = own.values.shape[-1]
        k = min(self.rank or size, size)
        others = own.values[:, :-k].mean(-1, keepdim=True) if k < size else None
        return LayerBasis(own.inputs[:, -k:].contiguous(), own.signals, own.values[:, -k:], others, own.bias)


@settings
class KaoSum(KroneckerFOPNG):
    """Tasks added up as NCL's authors do: the product nearest to the sum of two in the divergence of Gaussians.

    `log det(A kron G) + tr((A kron G)^-1 M)`, M the sum, is least where `A = e_1 A_1 + e_2 A_2` with `e_t = tr(G^-1 G_t) / o`
    and `G = g_1 G_1 + g_2 G_2` with `g_t = tr(A^-1 A_t) / i`. The weights are worked out in turns.
    """

    def remembered(self, state: FOPNGKState, moments: Moments) -> FOPNGKState:
        before = {} if state.moments is None else state.moments.layers
        state = super().remembered(state, moments)
        layers = dict(state.moments.layers)
        for names, new in moments.layers.items():
            if names in before:
                layers[names] = nearest_product(before[names], new)
        return replace(state, moments=replace(state.moments, layers=layers))


def nearest_product(old: LayerMoments, new: LayerMoments) -> LayerMoments:
    """The moments whose product is nearest to the sum of two."""
    alphas, betas = shares(old.inputs, new.inputs), shares(old.signals, new.signals)
    g = torch.ones(2, dtype=torch.float64)
    for _ in range(100):
        e = nearest_weights(betas, g)
        g = nearest_weights(alphas, e)
    return LayerMoments(
        (e[0] * old.inputs + e[1] * new.inputs).to(new.inputs),
        (g[0] * old.signals + g[1] * new.signals).to(new.signals),
    )


def shares(old: Tensor, new: Tensor) -> Tensor:
    """How much of the sum of two moments is the old one's, along the directions that take both apart."""
    values, vectors = torch.linalg.eigh((old + new).double())
    reached = values > 1e-5 * values[-1]
    root = vectors[:, reached] / values[reached].sqrt()
    return torch.linalg.eigvalsh(root.mT @ old.double() @ root).clamp(0, 1)


def nearest_weights(share: Tensor, weights: Tensor) -> Tensor:
    """`tr(X^-1 X_t) / n` for `X = w_1 X_1 + w_2 X_2`, of both t."""
    total = weights[0] * share + weights[1] * (1 - share)
    return torch.stack([(share / total).mean(), ((1 - share) / total).mean()])


@settings
class Hard(KroneckerFOPNG):
    """Directions with `s l > 1` are projected out, the others left as they are."""

    def prepare(self, state: FOPNGKState, names: Collection[str]) -> Prepared:
        if state.moments is None:
            return Prepared()
        s, old = self.weight(state), self.old_fisher(state.moments, names)
        return Prepared(Shrinkage(old.map(lambda own: (broadcast(s, own) * own <= 1).to(own))))


@node
@dataclass(frozen=True)
class PulledState(FOPNGKState):
    """The old tasks' moments, and where the last one ended."""

    anchor: Vector | None = None


@settings
class Pulled(KroneckerFOPNG):
    """`v = eta ((I + s F_old / f)^-1 g + c (theta - theta*))`, NCL's pull in our unit."""

    state_type: ClassVar[type[State]] = PulledState

    pull: Annotated[float, AT_LEAST_0, "c, how strong the pull is."]

    def bend(self, v: Vector, step: Step[PulledState, AveragingRunning]) -> Vector:
        way = step.theta.only(v.parts) - step.state.anchor.only(v.parts)
        return super().bend(v, step) + way * self.pull

    def keep(self, state: PulledState, task: Task) -> PulledState:
        return replace(super().keep(state, task), anchor=task.parameters())


@node
@dataclass(frozen=True)
class NaturalState(FOPNGKState):
    """The old tasks' moments, and the new task's damped Fisher, inverted."""

    inverse: KroneckerOperator | None = None


@settings
class Natural(KroneckerFOPNG):
    """The new task's own Kronecker metric, measured once an epoch: a step of length eta along `F_new^-1` times what is left of g.

    With `first` the natural step comes first, and what is held back is that.
    """

    state_type: ClassVar[type[State]] = NaturalState

    damping: Annotated[float, ABOVE_0, "lambda, added to the new task's Fisher."]
    first: Annotated[bool, "whether the natural step is what is held back."] = False

    def refresh(
        self, state: NaturalState, running: AveragingRunning, task: Task
    ) -> tuple[NaturalState, AveragingRunning]:
        moments = task.moments("sampled", self.fisher_samples)
        layers = {n: LayerBasis.of(m, bias=len(n) > 1, rank=self.rank) for n, m in moments.layers.items()}
        inverse = KroneckerOperator(layers, moments.rest).map(lambda own: 1 / (own + self.damping))
        return replace(state, inverse=inverse), running

    def bend(self, v: Vector, step: Step[NaturalState, AveragingRunning]) -> Vector:
        u = v if self.first else super().bend(v, step)
        found = step.state.inverse(u)
        found = found / u.dot(found).sqrt()
        return super().bend(found, step) if self.first else found


class SecondMoment:
    """The running mean of squares, without the bias of its start at zero.

    It changes in place: what is left of a gradient is known in `bend` alone, which returns no more than the step.
    """

    def __init__(self) -> None:
        self.mean, self.steps = Vector({}), 0

    def root(self, u: Vector) -> Vector:
        """The root of the mean, after one more vector."""
        self.steps += 1
        self.mean = self.mean.extended(u).lerp(u * u, 1e-3)
        return (self.mean.only(u.parts) / (1 - 0.999**self.steps)).map(torch.sqrt)


@node
@dataclass(frozen=True)
class ScaledRunning(AveragingRunning):
    """Adam's second moment."""

    squares: SecondMoment = field(default_factory=SecondMoment)


@settings
class Scaled(KroneckerFOPNG):
    """Adam's second moment on what is left of the gradient: `v = eta u / (sqrt(E[u^2]) + 1e-8)`; with `first`, on g itself."""

    running_type: ClassVar[type[Running]] = ScaledRunning

    first: Annotated[bool, "whether the scaled step is what is held back."] = False

    def bend(self, v: Vector, step: Step[FOPNGKState, ScaledRunning]) -> Vector:
        u = v if self.first else super().bend(v, step)
        found = u / step.running.squares.root(u).shifted(1e-8)
        return super().bend(found, step) if self.first else found
