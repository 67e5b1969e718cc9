"""Fisher-Orthogonal Projected Natural Gradient Descent: the paper's method."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, final

from fopng.core.tree import node
from fopng.curvature.fishers import Fisher
from fopng.gradients.directions import Basis
from fopng.optim.method import About, State
from fopng.optim.projected_base import FormedProjected, StoredFisherState
from fopng.optim.settings import SHARE, settings
from fopng.optim.task import Task


@final
@node
@dataclass(frozen=True)
class FOPNGState(StoredFisherState):
    """The gradients of old tasks and the mean of their Fishers, `F_old`."""

    fisher_old: Fisher | None = None


@final
@settings
class FOPNG(FormedProjected[FOPNGState]):
    """FOPNG: steps of Fisher length eta along the natural gradient, projected away from the old tasks' `F_old G`.

    Eq. 18: `v = eta F_new^-1 P g / sqrt(g^T P^T F_new^-1 P g)`, with the basis `B = F_old G`.
    """

    about: ClassVar[About] = About(
        "fopng", "Fisher-orthogonal projected natural gradient", 2026, "FOPNG paper", "gradients, Fisher"
    )
    state_type: ClassVar[type[State]] = FOPNGState

    fisher_weight: Annotated[float, SHARE, "alpha, the weight of the newest task when its Fisher joins `F_old`."] = 0.5

    def basis(self, state: FOPNGState, names: Collection[str]) -> Basis:
        if state.fisher_old is None:
            return state.gradients.only(names)
        return state.fisher_old.times(state.gradients).only(names)

    def stored(self, state: FOPNGState, task: Task) -> FOPNGState:
        # at the end of the task, where the gradients are stored too (docs/explanation/deviations.md, 4)
        fisher, old = self.estimate(task).kept(), state.fisher_old
        state = super().stored(state, task)
        return replace(state, fisher_old=fisher if old is None else old.averaged(fisher, self.fisher_weight))
