"""Optimizers for continual learning, and the laboratory that compares them."""

from fopng.likelihood import Bernoulli, Categorical, Gaussian, Likelihood
from fopng.memory import MemoryFull
from fopng.methods import (
    EWC,
    FNG,
    FOPNG,
    OGD,
    ONG,
    SGD,
    Adam,
    ContinualOptimizer,
    Diagnosis,
    FOPNGPreFisher,
    NaturalOGD,
)
from fopng.projection import IllConditioned

__version__ = "0.1.0"

__all__ = [
    "EWC",
    "FNG",
    "FOPNG",
    "OGD",
    "ONG",
    "SGD",
    "Adam",
    "Bernoulli",
    "Categorical",
    "ContinualOptimizer",
    "Diagnosis",
    "FOPNGPreFisher",
    "Gaussian",
    "IllConditioned",
    "Likelihood",
    "MemoryFull",
    "NaturalOGD",
]
