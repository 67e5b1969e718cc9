"""Written by `tools/stubs.py`."""

from fopng.core.batch import PredictTask as PredictTask
from fopng.core.likelihood import Bernoulli as Bernoulli
from fopng.core.likelihood import Categorical as Categorical
from fopng.core.likelihood import Gaussian as Gaussian
from fopng.core.likelihood import Likelihood as Likelihood
from fopng.memory.gradients import MemoryFull as MemoryFull
from fopng.memory.projection import IllConditioned as IllConditioned
from fopng.optim import methods as methods
from fopng.optim.coverage import Coverage as Coverage
from fopng.optim.coverage import coverage as coverage
from fopng.optim.diagnostics import Diagnosis as Diagnosis
from fopng.optim.optimizer import ContinualOptimizer as ContinualOptimizer
from fopng.optim.optimizers import AGEM as AGEM
from fopng.optim.optimizers import Adam as Adam
from fopng.optim.optimizers import ER as ER
from fopng.optim.optimizers import EWC as EWC
from fopng.optim.optimizers import FNG as FNG
from fopng.optim.optimizers import FOPNG as FOPNG
from fopng.optim.optimizers import FOPNGPreFisher as FOPNGPreFisher
from fopng.optim.optimizers import GEM as GEM
from fopng.optim.optimizers import GPM as GPM
from fopng.optim.optimizers import KroneckerFOPNG as KroneckerFOPNG
from fopng.optim.optimizers import LwF as LwF
from fopng.optim.optimizers import MAS as MAS
from fopng.optim.optimizers import NCL as NCL
from fopng.optim.optimizers import NaturalOGD as NaturalOGD
from fopng.optim.optimizers import OGD as OGD
from fopng.optim.optimizers import ONG as ONG
from fopng.optim.optimizers import OnlineEWC as OnlineEWC
from fopng.optim.optimizers import SGD as SGD
from fopng.optim.optimizers import SGP as SGP
from fopng.optim.optimizers import SI as SI
from fopng.optim.replay_base import HeadChanged as HeadChanged
from fopng.parallel.collectives import NotShared as NotShared

__version__: str
HOMES: dict[str, str]
