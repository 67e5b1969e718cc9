"""Scaled Gradient Projection (Saha and Roy, 2023)."""

from typing import Annotated, ClassVar, final

import torch
from torch import Tensor

from fopng.core.vector import broadcast
from fopng.optim.gpm import MainDirections
from fopng.optim.method import About
from fopng.optim.settings import AT_LEAST_0, settings


@final
@settings
class SGP(MainDirections):
    """Scaled Gradient Projection: GPM that lets go of each old direction as far as it did not matter much.

    A direction counts as much as its singular value: `lambda = (alpha + 1) s / (alpha s + max s)`, added up over tasks to 1.
    """

    about: ClassVar[About] = About(
        "sgp", "Scaled gradient projection", 2023, "Saha, Roy", "directions of layers' inputs"
    )

    importance_scale: Annotated[
        float,
        AT_LEAST_0,
        "alpha: 0 lets a direction count in proportion to its singular value, large values make it GPM.",
    ] = 10.0

    def weigh(self, values: Tensor, old: Tensor) -> Tensor:
        alpha = broadcast(self.importance_scale, values)
        largest = values.amax(-1, keepdim=True)
        latest = (alpha + 1) * values / (alpha * values + largest)
        return (torch.where(largest > 0, latest, 0.0) + old).clamp(max=1.0)
