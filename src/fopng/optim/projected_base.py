"""What methods share that store gradients of old tasks and project new ones away from them."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Generic, TypeVar

from torch import Tensor

from fopng.core.likelihood import Score
from fopng.core.tree import node
from fopng.core.vector import Vector
from fopng.curvature.metric import Diagonal, Identity, Metric
from fopng.gradients.directions import Basis, ScaledBasis
from fopng.memory.compression import WhenFull, captured, combine, leading_directions, lost_share
from fopng.memory.gradients import GradientMemory
from fopng.memory.projection import Form, Projector
from fopng.optim.method import Method, Needs, Prepared, Running, State
from fopng.optim.natural_base import FisherState, Natural
from fopng.optim.settings import AT_LEAST_0_OR_NONE, COUNT, COUNT_OR_ALL, SHARE_ABOVE_0, settings
from fopng.optim.task import Task

ROUNDING_DAMPING = 1e-6
"""The default of `gram_damping` where it is relative to the Gram matrix: enough for its rounding in float32."""

PROJECTION = (
    '"printed" (the paper\'s `P`) or "orthogonal" (the one that makes the step Fisher-orthogonal to the old tasks; '
    "docs/explanation/deviations.md, 1)."
)
FORM_DAMPING = (
    "added to the Gram matrix `A`. In the printed form as it is, None for `damping`; in the orthogonal one times the mean of A's "
    "diagonal, None for a value that covers rounding."
)


@node
@dataclass(frozen=True)
class StoredState(State):
    """The gradients of old tasks."""

    gradients: GradientMemory = field(default_factory=GradientMemory)

    @property
    def memory(self) -> GradientMemory:
        return self.gradients


P = TypeVar("P", bound=StoredState)


@settings
class Projected(Method[P, Running], Generic[P]):
    """A method that stores gradients of old tasks and projects new ones away from them."""

    gram_damping: Annotated[
        float | None,
        AT_LEAST_0_OR_NONE,
        "added to `G^T G`, times the mean of its diagonal; None for a value that covers rounding.",
    ] = None
    gradients_per_task: Annotated[int, COUNT, "gradients stored of each task."] = 80
    max_directions: Annotated[int | None, COUNT_OR_ALL, "the most gradients stored in all; None for no limit."] = None
    when_full: Annotated[
        WhenFull,
        'what happens beyond that: "thin" (every task keeps an even share of its gradients) or "compress" (all are combined into '
        "so many that hold the most of them in the metric in use; `compression_error` tells what is lost).",
    ] = "thin"
    kept_energy: Annotated[
        float,
        SHARE_ABOVE_0,
        "the share of the directions' squared length that is enough when they are compressed, by fewer directions then.",
    ] = 1.0
    score: Annotated[
        Score,
        'of which score they are: "ground-truth" (the true class\'s logit), "average" (the mean logit), "log-likelihood".',
    ] = "ground-truth"

    state_type: ClassVar[type[State]] = StoredState

    @property
    def needs(self) -> Needs:
        return Needs(one_rate=True, plain_start=True)

    @property
    def form(self) -> Form:
        """The form of `P`."""
        return "orthogonal"

    @property
    def used_gram_damping(self) -> float:
        """What is added to the Gram matrix."""
        return ROUNDING_DAMPING if self.gram_damping is None else self.gram_damping

    def basis(self, state: P, names: Collection[str]) -> Basis:
        """The directions to project away, in these parameters: `G`, or what the method makes of it."""
        return state.gradients.only(names)

    def projection_metric(self, state: P) -> Metric:
        """The metric in which the projection is made."""
        return Identity()

    def projector(self, state: P, names: Collection[str]) -> Projector | None:
        """`P` in these parameters; None while there is nothing to project away."""
        basis = self.basis(state, names) if state.gradients.count else state.gradients
        if basis.count == 0:
            return None
        return Projector.build(
            basis, self.projection_metric(state), gram_damping=self.used_gram_damping, form=self.form
        )

    def prepare(self, state: P, names: Collection[str]) -> Prepared:
        return Prepared(self.projector(state, names))

    def stored(self, state: P, task: Task) -> P:
        """Add the task's gradients to the memory."""
        return self.appended(state, task, weight=None)

    def appended(self, state: P, task: Task, weight: Vector | None) -> P:
        """Add the task's gradients, each times a diagonal if one is given."""
        found = task.gradients(self.gradients_per_task, self.score)
        capacity = self.max_directions if self.when_full == "thin" else None
        return replace(state, gradients=state.gradients.appended(*found, weight=weight, capacity=capacity))

    def end_task(self, state: P, running: Running, task: Task) -> tuple[P, Running]:
        state = self.stored(state, task)
        limit = self.max_directions
        if limit is not None and state.gradients.count > limit:
            if self.missing(state):
                # another optimizer has learnt this task: there is no metric in use yet
                state, running = self.refresh(state, running, task)
            state = self._compressed(state, limit)
        return state, running

    def _compressed(self, state: P, rank: int) -> P:
        """Combine what is stored into fewer directions, the most telling ones in the metric of the projection."""
        # measured where the task at hand was: other tasks' heads have no Fisher now
        names = state.gradients.latest
        metric, before = self.projection_metric(state), self.basis(state, names)
        gram = metric.inverse_gram(before)
        mix = self.stored_combinations(state, leading_directions(gram, rank, self.kept_energy))
        smaller = replace(state, gradients=combine(state.gradients, mix, _lengths(before, metric)))
        kept = captured(before, self.basis(smaller, names), metric, state.gradients.like)
        lost = lost_share(gram.diagonal(dim1=-2, dim2=-1), kept, state.gradients)
        return replace(smaller, gradients=replace(smaller.gradients, error=lost.to(smaller.gradients.like.dtype)))

    def stored_combinations(self, state: P, mix: Tensor) -> Tensor:
        """How the stored gradients are combined when the basis is combined like this, `[..., m, k]`."""
        return mix


def _lengths(basis: Basis, metric: Metric) -> Vector | None:
    """What a unit of each stored parameter is long in the metric of the projection; None where that is not told."""
    if not isinstance(metric, Diagonal):
        return None
    lengths = metric.inverse.map(Tensor.sqrt)
    return lengths * basis.scale if isinstance(basis, ScaledBasis) else lengths


@node
@dataclass(frozen=True)
class StoredFisherState(FisherState, StoredState):
    """The gradients of old tasks, and the new task's Fisher."""


Q = TypeVar("Q", bound=StoredFisherState)


@settings
class NaturalProjected(Projected[Q], Natural[Q], Generic[Q]):
    """Stored gradients projected away, then a natural gradient."""

    state_type: ClassVar[type[State]] = StoredFisherState

    @property
    def needs(self) -> Needs:
        return Needs("the new task's Fisher", one_rate=True, plain_start=True)

    def projection_metric(self, state: Q) -> Metric:
        assert state.fisher_new is not None
        return state.fisher_new.metric(self.damping)

    def prepare(self, state: Q, names: Collection[str]) -> Prepared:
        metric = Natural.prepare(self, state, names).metric
        return Prepared(self.projector(state, names), metric)

    def end_task(self, state: Q, running: Running, task: Task) -> tuple[Q, Running]:
        state, running = Projected.end_task(self, state, running, task)
        return Natural.end_task(self, state, running, task)


@settings
class FormedProjected(NaturalProjected[Q], Generic[Q]):
    """One whose projection has the printed or the orthogonal form."""

    projection: Annotated[Form, PROJECTION] = "printed"
    gram_damping: Annotated[float | None, AT_LEAST_0_OR_NONE, FORM_DAMPING] = None

    @property
    def form(self) -> Form:
        return self.projection

    @property
    def used_gram_damping(self) -> float:
        # the printed form uses lambda twice (docs/explanation/deviations.md, 2); the orthogonal one only what rounding needs
        default = self.damping if self.projection == "printed" else ROUNDING_DAMPING
        return default if self.gram_damping is None else self.gram_damping
