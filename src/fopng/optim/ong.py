"""Orthogonal natural gradient: a Euclidean projection, then the inverse Fisher."""

from typing import ClassVar, final

from fopng.curvature.metric import Identity, Metric
from fopng.optim.method import About
from fopng.optim.projected_base import NaturalProjected, StoredFisherState
from fopng.optim.settings import settings


@final
@settings
class ONG(NaturalProjected[StoredFisherState]):
    """Orthogonal natural gradient: OGD's Euclidean projection, preconditioned with the new task's Fisher.

    `v` along `F_new^-1 (g - G (G^T G)^-1 G^T g)`, of Fisher length eta: eq. 6 before a natural gradient.
    """

    about: ClassVar[About] = About("ong", "Orthogonal natural gradient", 2025, "see FOPNG paper", "gradients")

    def projection_metric(self, state: StoredFisherState) -> Metric:
        return Identity()
