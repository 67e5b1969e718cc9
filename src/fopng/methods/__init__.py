"""The methods, one file each: the drop-in optimizer and its mathematics."""

from fopng.methods.adam import Adam
from fopng.methods.agem import AGEM
from fopng.methods.diagnosis import Diagnosis
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
from fopng.methods.rehearsal import HeadChanged
from fopng.methods.sgd import SGD
from fopng.methods.sgp import SGP
from fopng.methods.si import SI

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
    "ContinualOptimizer",
    "Diagnosis",
    "FOPNGPreFisher",
    "HeadChanged",
    "KroneckerFOPNG",
    "LwF",
    "NaturalOGD",
    "OnlineEWC",
]
