"""The methods by the names that people type."""

from dataclasses import dataclass
from typing import final

from fopng.methods.adam import Adam
from fopng.methods.agem import AGEM
from fopng.methods.er import ER
from fopng.methods.ewc import EWC
from fopng.methods.fng import FNG
from fopng.methods.fopng import FOPNG
from fopng.methods.gem import GEM
from fopng.methods.gpm import GPM
from fopng.methods.kronecker_fopng import KroneckerFOPNG
from fopng.methods.lwf import LwF
from fopng.methods.mas import MAS
from fopng.methods.natural_ogd import NaturalOGD
from fopng.methods.ncl import NCL
from fopng.methods.ogd import OGD
from fopng.methods.ong import ONG
from fopng.methods.online_ewc import OnlineEWC
from fopng.methods.optimizer import ContinualOptimizer
from fopng.methods.prefisher import FOPNGPreFisher
from fopng.methods.sgd import SGD
from fopng.methods.sgp import SGP
from fopng.methods.si import SI


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
