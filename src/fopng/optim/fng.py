"""Fisher natural gradient: the paper's baseline without a projection."""

from typing import ClassVar, final

from fopng.optim.method import About
from fopng.optim.natural_base import FisherState, Natural
from fopng.optim.settings import settings


@final
@settings
class FNG(Natural[FisherState]):
    """Fisher natural gradient: steps of Fisher length eta along `F_new^-1 g` (Theorem 3.3); nothing is kept of old tasks."""

    about: ClassVar[About] = About("fng", "Fisher natural gradient", 1998, "Amari", "nothing")
