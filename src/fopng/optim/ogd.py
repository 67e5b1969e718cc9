"""Orthogonal Gradient Descent (Farajtabar et al., 2020)."""

from typing import ClassVar, final

from fopng.core.vector import Vector
from fopng.optim.method import About, Running, Step
from fopng.optim.projected_base import Projected, StoredState
from fopng.optim.settings import settings


@final
@settings
class OGD(Projected[StoredState]):
    """Orthogonal Gradient Descent: SGD on what is orthogonal to the stored gradients of old tasks.

    Eq. 6: `v = eta (g - G (G^T G)^-1 G^T g)`.
    """

    about: ClassVar[About] = About("ogd", "Orthogonal gradient descent", 2020, "Farajtabar et al.", "gradients")

    def bend(self, v: Vector, step: Step[StoredState, Running]) -> Vector:
        return v if step.prepared.remover is None else step.prepared.remover(v)
