"""Optimizers for continual learning, and the laboratory that compares them."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fopng.core.batch import PredictTask
    from fopng.core.likelihood import Bernoulli, Categorical, Gaussian, Likelihood
    from fopng.memory.gradients import MemoryFull
    from fopng.memory.projection import IllConditioned
    from fopng.optim import (
        AGEM,
        ER,
        EWC,
        FNG,
        FOPNG,
        GEM,
        GPM,
        MAS,
        NCL,
        OGD,
        ONG,
        SGD,
        SGP,
        SI,
        Adam,
        ContinualOptimizer,
        Diagnosis,
        FOPNGPreFisher,
        HeadChanged,
        KroneckerFOPNG,
        LwF,
        NaturalOGD,
        OnlineEWC,
    )
    from fopng.parallel.collectives import NotShared

__version__ = "0.1.0"

__all__ = [
    "AGEM",
    "ER",
    "EWC",
    "FNG",
    "FOPNG",
    "GEM",
    "GPM",
    "MAS",
    "NCL",
    "OGD",
    "ONG",
    "SGD",
    "SGP",
    "SI",
    "Adam",
    "Bernoulli",
    "Categorical",
    "ContinualOptimizer",
    "Diagnosis",
    "FOPNGPreFisher",
    "Gaussian",
    "HeadChanged",
    "IllConditioned",
    "KroneckerFOPNG",
    "Likelihood",
    "LwF",
    "MemoryFull",
    "NaturalOGD",
    "NotShared",
    "OnlineEWC",
    "PredictTask",
]

_ELSEWHERE = {
    **dict.fromkeys(("Bernoulli", "Categorical", "Gaussian", "Likelihood"), "fopng.core.likelihood"),
    "IllConditioned": "fopng.memory.projection",
    "MemoryFull": "fopng.memory.gradients",
    "NotShared": "fopng.parallel.collectives",
    "PredictTask": "fopng.core.batch",
}


def __getattr__(name: str) -> object:
    """Import what is asked for when it is asked for: torch takes a second, and `fopng --help` needs none of it."""
    if name not in __all__:
        raise AttributeError(f"module 'fopng' has no attribute {name!r}")
    found: object = getattr(import_module(_ELSEWHERE.get(name, "fopng.optim")), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
