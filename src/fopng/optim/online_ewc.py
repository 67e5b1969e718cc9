"""Online Elastic Weight Consolidation (Schwarz et al., 2018)."""

from typing import Annotated, ClassVar, final

from fopng.core.vector import Vector
from fopng.optim.ewc import ElasticPenalty
from fopng.optim.method import About
from fopng.optim.settings import SHARE, settings


@final
@settings
class OnlineEWC(ElasticPenalty):
    """Online EWC: EWC whose earlier tasks' Fishers fade, `F <- decay F + F_t`, so that long streams leave room to learn."""

    about: ClassVar[About] = About(
        "online-ewc", "Online elastic weight consolidation", 2018, "Schwarz et al.", "Fisher, weights"
    )

    decay: Annotated[
        float,
        SHARE,
        "gamma, how much of the earlier tasks' Fisher each new task leaves, from 0 (only the latest task counts) to 1 (EWC).",
    ] = 0.95

    def faded(self, old: Vector) -> Vector:
        return old * self.decay
