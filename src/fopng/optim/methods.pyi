"""Written by `tools/stubs.py`."""

from typing import Any

from fopng.optim.adam import Adam as Adam
from fopng.optim.agem import AGEM as AGEM
from fopng.optim.er import ER as ER
from fopng.optim.ewc import EWC as EWC
from fopng.optim.fng import FNG as FNG
from fopng.optim.fopng import FOPNG as FOPNG
from fopng.optim.fopng_k import KroneckerFOPNG as KroneckerFOPNG
from fopng.optim.gem import GEM as GEM
from fopng.optim.gpm import GPM as GPM
from fopng.optim.lwf import LwF as LwF
from fopng.optim.mas import MAS as MAS
from fopng.optim.method import Method as Method
from fopng.optim.natural_ogd import NaturalOGD as NaturalOGD
from fopng.optim.ncl import NCL as NCL
from fopng.optim.ogd import OGD as OGD
from fopng.optim.ong import ONG as ONG
from fopng.optim.online_ewc import OnlineEWC as OnlineEWC
from fopng.optim.prefisher import FOPNGPreFisher as FOPNGPreFisher
from fopng.optim.sgd import SGD as SGD
from fopng.optim.sgp import SGP as SGP
from fopng.optim.si import SI as SI

ALL: dict[str, type[Method[Any, Any]]]
