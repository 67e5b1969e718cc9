"""The methods that benchmarks time, with room for so many directions, and at so small a rate that nothing moves far."""

from collections.abc import Callable
from typing import Any

from torch import nn

import fopng

Make = Callable[[nn.Module, Callable[..., Any], int], fopng.ContinualOptimizer]
"""From a model, its predict function and the number of directions."""

FISHER: Any = {"fisher_samples": 64}

CONTENDERS: dict[str, Make] = {
    "sgd": lambda model, predict, m: fopng.SGD(model, 1e-4, predict=predict),
    "adam": lambda model, predict, m: fopng.Adam(model, 1e-6, predict=predict),
    "ewc": lambda model, predict, m: fopng.EWC(model, 1e-4, predict=predict, **FISHER),
    "si": lambda model, predict, m: fopng.SI(model, 1e-4, predict=predict),
    "mas": lambda model, predict, m: fopng.MAS(model, 1e-4, predict=predict, sensitivity_samples=64),
    "lwf": lambda model, predict, m: fopng.LwF(model, 1e-4, predict=predict, distilled_samples=m),
    "er": lambda model, predict, m: fopng.ER(model, 1e-4, predict=predict),
    "a-gem": lambda model, predict, m: fopng.AGEM(model, 1e-4, predict=predict),
    "gem": lambda model, predict, m: fopng.GEM(model, 1e-4, predict=predict),
    "online-ewc": lambda model, predict, m: fopng.OnlineEWC(model, 1e-4, predict=predict, **FISHER),
    "gpm": lambda model, predict, m: fopng.GPM(model, 1e-4, predict=predict),
    "sgp": lambda model, predict, m: fopng.SGP(model, 1e-4, predict=predict),
    "fng": lambda model, predict, m: fopng.FNG(model, 1e-5, predict=predict, **FISHER),
    "ogd": lambda model, predict, m: fopng.OGD(model, 1e-5, predict=predict, gradients_per_task=m),
    "ong": lambda model, predict, m: fopng.ONG(model, 1e-5, predict=predict, gradients_per_task=m, **FISHER),
    "natural-ogd": lambda model, predict, m: fopng.NaturalOGD(
        model, 1e-5, predict=predict, gradients_per_task=m, **FISHER
    ),
    "fopng": lambda model, predict, m: fopng.FOPNG(model, 1e-5, predict=predict, gradients_per_task=m, **FISHER),
    "fopng (orthogonal)": lambda model, predict, m: fopng.FOPNG(
        model, 1e-5, predict=predict, gradients_per_task=m, projection="orthogonal", **FISHER
    ),
    "fopng-prefisher": lambda model, predict, m: fopng.FOPNGPreFisher(
        model, 1e-5, predict=predict, gradients_per_task=m, **FISHER
    ),
    "ncl": lambda model, predict, m: fopng.NCL(model, 1e-4, predict=predict, fisher_samples=512),
    "fopng-k": lambda model, predict, m: fopng.KroneckerFOPNG(model, 1e-4, predict=predict, fisher_samples=512),
}

STORES = ("ogd", "ong", "natural-ogd", "fopng", "fopng (orthogonal)", "fopng-prefisher")
"""Those whose step depends on the number of directions."""
