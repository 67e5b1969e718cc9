"""Optimizers for continual learning, and the laboratory that compares them."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fopng.likelihood import Bernoulli, Categorical, Gaussian, Likelihood
    from fopng.memory import MemoryFull
    from fopng.methods import (
        EWC,
        FNG,
        FOPNG,
        GPM,
        NCL,
        OGD,
        ONG,
        SGD,
        SGP,
        Adam,
        ContinualOptimizer,
        Diagnosis,
        FOPNGPreFisher,
        KroneckerFOPNG,
        NaturalOGD,
        OnlineEWC,
    )
    from fopng.projection import IllConditioned

__version__ = "0.1.0"

__all__ = [
    "EWC",
    "FNG",
    "FOPNG",
    "GPM",
    "NCL",
    "OGD",
    "ONG",
    "SGD",
    "SGP",
    "Adam",
    "Bernoulli",
    "Categorical",
    "ContinualOptimizer",
    "Diagnosis",
    "FOPNGPreFisher",
    "Gaussian",
    "IllConditioned",
    "KroneckerFOPNG",
    "Likelihood",
    "MemoryFull",
    "NaturalOGD",
    "OnlineEWC",
]

_ELSEWHERE = {
    **dict.fromkeys(("Bernoulli", "Categorical", "Gaussian", "Likelihood"), "fopng.likelihood"),
    "IllConditioned": "fopng.projection",
    "MemoryFull": "fopng.memory",
}


def __getattr__(name: str) -> object:
    """Import what is asked for when it is asked for: torch takes a second, and `fopng --help` needs none of it."""
    if name not in __all__:
        raise AttributeError(f"module 'fopng' has no attribute {name!r}")
    found: object = getattr(import_module(_ELSEWHERE.get(name, "fopng.methods")), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
