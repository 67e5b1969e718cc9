"""Natural OGD: stored gradients, projected away in the Fisher metric."""

from typing import Annotated, ClassVar, final

from fopng.optim.method import About
from fopng.optim.projected_base import NaturalProjected, StoredFisherState
from fopng.optim.settings import AT_LEAST_0_OR_NONE, settings


@final
@settings
class NaturalOGD(NaturalProjected[StoredFisherState]):
    """Natural OGD: steps of Fisher length eta that leave the stored scores of old tasks unchanged to first order.

    `G^T v = 0` with the projection made in the `F_new` metric: `P = I - G (G^T F_new^-1 G)^-1 G^T F_new^-1`.
    """

    about: ClassVar[About] = About("natural-ogd", "OGD in the Fisher metric", 2026, "this project", "gradients")

    gram_damping: Annotated[
        float | None,
        AT_LEAST_0_OR_NONE,
        "added to `G^T F_new^-1 G`, times the mean of its diagonal; None for a value that covers rounding.",
    ] = None
