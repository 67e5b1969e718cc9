"""The methods by the names that people type."""

from dataclasses import dataclass
from typing import final

from fopng.optim.adam import Adam
from fopng.optim.agem import AGEM
from fopng.optim.er import ER
from fopng.optim.ewc import EWC
from fopng.optim.fng import FNG
from fopng.optim.fopng import FOPNG
from fopng.optim.fopng_k import KroneckerFOPNG
from fopng.optim.gem import GEM
from fopng.optim.gpm import GPM
from fopng.optim.lwf import LwF
from fopng.optim.mas import MAS
from fopng.optim.natural_ogd import NaturalOGD
from fopng.optim.ncl import NCL
from fopng.optim.ogd import OGD
from fopng.optim.ong import ONG
from fopng.optim.online_ewc import OnlineEWC
from fopng.optim.optimizer import ContinualOptimizer
from fopng.optim.prefisher import FOPNGPreFisher
from fopng.optim.sgd import SGD
from fopng.optim.sgp import SGP
from fopng.optim.si import SI


@final
@dataclass(frozen=True)
class MethodEntry:
    """A method that is known by name.

    Attributes:
        name: what a user types.
        optimizer: the class that does it.
        title: its name in full.
        year: when it was published.
        paper: by whom.
        keeps: what it keeps of old tasks.
        keeps_data: whether samples of old tasks are among that.
        joint: whether it learns all tasks together instead of one after another.
    """

    name: str
    optimizer: type[ContinualOptimizer]
    title: str
    year: int
    paper: str
    keeps: str
    keeps_data: bool = False
    joint: bool = False


_GRADIENTS = "gradients"
_INPUTS = "directions of layers' inputs"
_FOPNG_PAPER = "FOPNG paper"

METHODS: dict[str, MethodEntry] = {
    entry.name: entry
    for entry in (
        MethodEntry("sgd", SGD, "Stochastic gradient descent", 1951, "Robbins, Monro", "nothing"),
        MethodEntry("adam", Adam, "Adam", 2015, "Kingma, Ba", "nothing"),
        MethodEntry("ewc", EWC, "Elastic weight consolidation", 2017, "Kirkpatrick et al.", "Fisher, weights"),
        MethodEntry("fng", FNG, "Fisher natural gradient", 1998, "Amari", "nothing"),
        MethodEntry("ogd", OGD, "Orthogonal gradient descent", 2020, "Farajtabar et al.", _GRADIENTS),
        MethodEntry(
            "fopng", FOPNG, "Fisher-orthogonal projected natural gradient", 2026, _FOPNG_PAPER, "gradients, Fisher"
        ),
        MethodEntry(
            "fopng-prefisher",
            FOPNGPreFisher,
            "FOPNG with gradients times Fisher stored",
            2026,
            _FOPNG_PAPER,
            _GRADIENTS,
        ),
        MethodEntry("ong", ONG, "Orthogonal natural gradient", 2025, "see FOPNG paper", _GRADIENTS),
        MethodEntry("natural-ogd", NaturalOGD, "OGD in the Fisher metric", 2026, "this project", _GRADIENTS),
        MethodEntry("si", SI, "Synaptic Intelligence", 2017, "Zenke et al.", "importances, weights"),
        MethodEntry("mas", MAS, "Memory Aware Synapses", 2018, "Aljundi et al.", "importances, weights"),
        MethodEntry("lwf", LwF, "Learning without Forgetting", 2016, "Li, Hoiem", "nothing but the model"),
        MethodEntry("er", ER, "Experience Replay", 2019, "Chaudhry et al.", "samples", True),
        MethodEntry("gem", GEM, "Gradient Episodic Memory", 2017, "Lopez-Paz, Ranzato", "samples", True),
        MethodEntry("a-gem", AGEM, "Averaged Gradient Episodic Memory", 2019, "Chaudhry et al.", "samples", True),
        MethodEntry(
            "online-ewc", OnlineEWC, "Online elastic weight consolidation", 2018, "Schwarz et al.", "Fisher, weights"
        ),
        MethodEntry(
            "fopng-k", KroneckerFOPNG, "FOPNG, soft, Kronecker-factored", 2026, "this project", "moments of layers"
        ),
        MethodEntry("ncl", NCL, "Natural continual learning", 2021, "Kao et al.", "moments of layers, weights"),
        MethodEntry("gpm", GPM, "Gradient projection memory", 2021, "Saha et al.", _INPUTS),
        MethodEntry("sgp", SGP, "Scaled gradient projection", 2023, "Saha, Roy", _INPUTS),
        MethodEntry("joint", SGD, "SGD on all tasks together", 1951, "reference", "all data", True, True),
    )
}
"""In the order of the paper's table, then those it has no column for."""
