"""What methods share whose step has its length in the new task's Fisher."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Generic, TypeVar

import torch

from fopng.core.likelihood import Labels
from fopng.core.tree import node
from fopng.core.vector import Vector
from fopng.curvature.fishers import Fisher, FisherName, estimate_fisher, planned_numbers
from fopng.curvature.metric import trust_region_step
from fopng.optim.ewc import FISHER_SAMPLES, LABELS
from fopng.optim.method import Method, Needs, Prepared, Running, State, Step
from fopng.optim.settings import ABOVE_0, COUNT, COUNT_OR_ALL, settings
from fopng.optim.task import Task

STEP_LENGTH = "eta, the length of a step in the new task's Fisher metric."


@node
@dataclass(frozen=True)
class FisherState(State):
    """The new task's Fisher, since the last `refresh`."""

    fisher_new: Fisher | None = None


F = TypeVar("F", bound=FisherState)


@settings
class Natural(Method[F, Running], Generic[F]):
    """A method whose base is a natural gradient: a step of Fisher length eta along `F_new^-1 g`."""

    metric: Annotated[
        FisherName,
        'how `F_new` is approximated: "diagonal", "kfac" (a Kronecker product for each layer), "ekfac" (that with corrected '
        'eigenvalues), "low-rank" (its leading directions and a diagonal), "full" (small models).',
    ] = "diagonal"
    fisher_rank: Annotated[int, COUNT, 'directions that "low-rank" keeps.'] = 16
    damping: Annotated[
        float, ABOVE_0, 'lambda, added to `F_new` before it is inverted; in "kfac" split between the two factors.'
    ] = 1e-3
    labels: Annotated[Labels, LABELS] = "observed"
    fisher_samples: Annotated[int | None, COUNT_OR_ALL, FISHER_SAMPLES] = None

    state_type: ClassVar[type[State]] = FisherState
    lr_means: ClassVar[str] = STEP_LENGTH

    @property
    def needs(self) -> Needs:
        return Needs("the new task's Fisher", data=False, one_rate=True, plain_start=True)

    @property
    def variant(self) -> str:
        return f"metric={self.metric!r}" + (f", fisher_rank={self.fisher_rank}" if self.metric == "low-rank" else "")

    def missing(self, state: F) -> bool:
        return state.fisher_new is None

    def estimate(self, task: Task) -> Fisher:
        """The Fisher of the task at hand."""
        return estimate_fisher(self.metric, self.fisher_rank, task, self.labels, self.fisher_samples)

    def refresh(self, state: F, running: Running, task: Task) -> tuple[F, Running]:
        return replace(state, fisher_new=self.estimate(task)), running

    def prepare(self, state: F, names: Collection[str]) -> Prepared:
        assert state.fisher_new is not None
        return Prepared(metric=state.fisher_new.metric(self.damping))

    def base(self, g: Vector, step: Step[F, Running]) -> Vector:
        remover, radius = step.prepared.remover, step.lr
        assert not isinstance(radius, Vector)
        left = g if remover is None else remover(g)
        # a metric that is not diagonal would move parameters that take no part along with their neighbours
        return trust_region_step(step.prepared.metric, left, radius=radius).only(g.parts)

    def end_task(self, state: F, running: Running, task: Task) -> tuple[F, Running]:
        return replace(state, fisher_new=None), running

    def planned_numbers(self, shapes: Mapping[str, torch.Size]) -> int:
        return planned_numbers(self.metric, self.fisher_rank, shapes)
