"""Memory Aware Synapses (Aljundi et al., 2018)."""

from typing import Annotated, ClassVar, final

from fopng.optim.method import About, Running
from fopng.optim.penalty_base import Penalty, PenaltyState
from fopng.optim.settings import COUNT_OR_ALL, settings
from fopng.optim.task import Task


@final
@settings
class MAS(Penalty[Running]):
    """Memory Aware Synapses: SGD, with a pull towards the old parameters where the answers to old samples hang on them.

    `W <- W + mean_n |d |outputs_n|^2 / d theta|` at the end of a task (eq. 3, 4).
    """

    about: ClassVar[About] = About("mas", "Memory Aware Synapses", 2018, "Aljundi et al.", "importances, weights")

    sensitivity_samples: Annotated[
        int | None,
        COUNT_OR_ALL,
        "samples the sensitivity of the answers is estimated on, drawn anew each time; None for all.",
    ] = None

    def end_task(self, state: PenaltyState, running: Running, task: Task) -> tuple[PenaltyState, Running]:
        found = task.sampling.sensitivity(self.sensitivity_samples)
        weights = found if state.weights is None else state.weights + found
        return PenaltyState(weights, task.parameters()), running
