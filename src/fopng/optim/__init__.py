"""The methods, one file each: the drop-in optimizer and its mathematics."""

from fopng.optim.adam import Adam
from fopng.optim.agem import AGEM
from fopng.optim.diagnostics import Diagnosis
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
from fopng.optim.rehearsal import HeadChanged
from fopng.optim.sgd import SGD
from fopng.optim.sgp import SGP
from fopng.optim.si import SI

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
