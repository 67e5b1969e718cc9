"""Elastic Weight Consolidation (Kirkpatrick et al., 2017)."""

from typing import Annotated, ClassVar, final

from fopng.core.likelihood import Labels
from fopng.core.vector import Vector
from fopng.optim.method import About, Running
from fopng.optim.penalty_base import Penalty, PenaltyState
from fopng.optim.settings import AT_LEAST_0, COUNT_OR_ALL, settings
from fopng.optim.task import Task

LABELS = 'which labels the Fisher uses: "observed" (the data\'s), "sampled" (drawn from the model), "expected" (exact).'
FISHER_SAMPLES = "samples the Fisher is estimated on, drawn anew each time; None for all."


@settings
class ElasticPenalty(Penalty[Running]):
    """`v = eta (g + strength F (theta - theta*))`, the gradient of eq. 5, anchored at the latest parameters."""

    strength: Annotated[float, AT_LEAST_0, "lambda, the weight of the penalty."] = 100.0
    labels: Annotated[Labels, LABELS] = "observed"
    fisher_samples: Annotated[int | None, COUNT_OR_ALL, FISHER_SAMPLES] = None

    def end_task(self, state: PenaltyState, running: Running, task: Task) -> tuple[PenaltyState, Running]:
        fisher = task.fisher(self.labels, self.fisher_samples)
        weights = fisher if state.weights is None else self.faded(state.weights) + fisher
        return PenaltyState(weights, task.parameters()), running

    def faded(self, old: Vector) -> Vector:
        """What is left of the earlier tasks' Fisher when one more task joins."""
        return old


@final
@settings
class EWC(ElasticPenalty):
    """Elastic Weight Consolidation: SGD, with a pull towards the old parameters where old tasks' Fishers are large."""

    about: ClassVar[About] = About("ewc", "Elastic weight consolidation", 2017, "Kirkpatrick et al.", "Fisher, weights")
