"""What methods share that store gradients of old tasks and project new ones away from them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, get_args

from torch import Tensor

from fopng.core.layout import ParamLayout
from fopng.core.likelihood import Score
from fopng.curvature.metric import Diagonal, Metric
from fopng.gradients.directions import Basis, ScaledBasis
from fopng.gradients.stored import StoredGradients
from fopng.memory.compression import WhenFull, captured, combine, leading_directions, lost_share
from fopng.memory.projection import Form, Projector
from fopng.memory.sharded import new_memory
from fopng.optim.method import Method, TaskData
from fopng.optim.ranges import AT_LEAST_0, COUNT, COUNT_OR_ALL, SOME_SHARE, choose

ORTHOGONAL_GRAM_DAMPING = 1e-6
"""The default of `gram_damping` where it is relative to the Gram matrix: enough for its rounding in float32."""


def default_gram_damping(value: float | None, damping: float, projection: Form) -> float:
    """The printed form uses lambda twice (docs/deviations.md, 2); the orthogonal one only what rounding needs."""
    if value is not None:
        return value
    return damping if projection == "printed" else ORTHOGONAL_GRAM_DAMPING


@dataclass(kw_only=True)
class ProjectedMethod(Method):
    """A method that stores gradients of old tasks and projects new ones away from them.

    Args:
        gradients_per_task: how many gradients each task leaves.
        max_directions: the most gradients kept in all; None for no limit.
        when_full: whether a full memory is thinned or compressed.
        kept_energy: the share of the directions' squared length that is enough when they are compressed.
        score: of which score the gradients are.
        gram_damping: added to the Gram matrix; relative to its mean diagonal unless the form is printed.
        projection: the form of `P`.
    """

    gradients_per_task: int
    max_directions: int | None
    when_full: WhenFull
    kept_energy: float | Tensor
    score: Score
    gram_damping: float | Tensor
    projection: Form

    own_start: ClassVar[bool] = False
    scalar_rate: ClassVar[bool] = True

    _projector: Projector | None = field(default=None, init=False, repr=False)

    def check(self) -> None:
        super().check()
        COUNT.check(self, "gradients_per_task")
        COUNT_OR_ALL.check(self, "max_directions")
        AT_LEAST_0.check(self, "gram_damping")
        choose("when_full", self.when_full, get_args(WhenFull))
        SOME_SHARE.check(self, "kept_energy")
        choose("score", self.score, get_args(Score))
        choose("projection", self.projection, get_args(Form))

    def attach(self, layout: ParamLayout) -> None:
        if self.memory is None:
            capacity = self.max_directions if self.when_full == "thin" else None
            self.memory = new_memory(layout, capacity=capacity, peers=self.peers)
        super().attach(layout)

    def forget_derived(self) -> None:
        self._projector = None
        super().forget_derived()

    @property
    def stored(self) -> StoredGradients:
        """The memory."""
        assert self.memory is not None
        return self.memory

    def basis(self) -> Basis:
        """The directions to project away: `G`, or what the method makes of it."""
        return self.visible()

    def visible(self, change: Callable[[StoredGradients], Basis] = lambda stored: stored) -> Basis:
        """The stored gradients, or what is made of them, in the parameters that take part."""
        if self.active is None:
            return change(self.stored)
        view = self.stored.only(self.active)
        partial = any(name not in self.active for key in view.layers for name in key)
        made = change(view)
        return ScaledBasis(made, self.active_mask(view.like).to(view.like.dtype)) if partial else made

    def projection_metric(self) -> Metric:
        """The metric in which the projection is made."""
        return self.step_metric()

    @property
    def projector(self) -> Projector:
        """`P`, built again only when the Fisher, the memory or the active parameters changed."""
        if self._projector is None:
            self._projector = Projector.build(
                self.basis(), self.projection_metric(), gram_damping=self.gram_damping, form=self.projection
            )
        return self._projector

    def end_task(self, task: TaskData) -> None:
        self.store(task, weight=None)
        self.forget_derived()
        limit = self.max_directions
        if limit is not None and self.stored.count > limit:
            if self.needs_fisher and "fisher_new" not in self.vectors:
                # another optimizer has learnt this task: there is no metric in use yet
                self.refresh(task)
            self._compress(limit)

    def _compress(self, rank: int) -> None:
        """Combine what is stored into fewer directions, the most telling ones in the metric of the projection."""
        # measured where the task at hand was: other tasks' heads have no Fisher now
        self.set_active(self.stored.latest)
        old, metric, before = self.stored, self.projection_metric(), self.basis()
        gram = metric.inverse_gram(before)
        mix = leading_directions(gram, rank, self.kept_energy)
        self.memory = combine(old, self.stored_combinations(mix), _lengths(before, metric))
        kept = captured(before, self.basis(), metric)
        lost = lost_share(gram.diagonal(dim1=-2, dim2=-1), kept, old)
        self.memory.error = lost.to(self.memory.like.dtype)
        self.forget_derived()

    def stored_combinations(self, mix: Tensor) -> Tensor:
        """How the stored gradients are combined when the basis is combined like this, `[..., m, k]`."""
        return mix

    def store(self, task: TaskData, *, weight: Tensor | None) -> None:
        """Add the task's gradients to the memory."""
        self.stored.append(*task.gradients(self.gradients_per_task, self.score), weight=weight)


def _lengths(basis: Basis, metric: Metric) -> Tensor | None:
    """What a unit of each stored parameter is long in the metric of the projection, `[..., p]`; None where that is not told."""
    if not isinstance(metric, Diagonal):
        return None
    lengths = metric.inverse.sqrt()
    return lengths * basis.scale if isinstance(basis, ScaledBasis) else lengths
