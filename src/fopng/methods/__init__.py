"""The methods, one file each: the drop-in optimizer and its mathematics."""

from fopng.methods.adam import Adam
from fopng.methods.diagnosis import Diagnosis
from fopng.methods.ewc import EWC
from fopng.methods.fng import FNG
from fopng.methods.fopng import FOPNG
from fopng.methods.gpm import GPM
from fopng.methods.kronecker_fopng import KroneckerFOPNG
from fopng.methods.natural_ogd import NaturalOGD
from fopng.methods.ncl import NCL
from fopng.methods.ogd import OGD
from fopng.methods.ong import ONG
from fopng.methods.online_ewc import OnlineEWC
from fopng.methods.optimizer import ContinualOptimizer
from fopng.methods.prefisher import FOPNGPreFisher
from fopng.methods.sgd import SGD
from fopng.methods.sgp import SGP

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
    "ContinualOptimizer",
    "Diagnosis",
    "FOPNGPreFisher",
    "KroneckerFOPNG",
    "NaturalOGD",
    "OnlineEWC",
]
