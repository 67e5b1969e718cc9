"""The optimizers: a class for each method."""

from fopng.optim.make_optimizer import make_optimizer_class
from fopng.optim.methods import ALL
from fopng.optim.optimizer import ContinualOptimizer

ALL_OPTIMIZERS: dict[str, type[ContinualOptimizer]] = {
    name: make_optimizer_class(method) for name, method in ALL.items()
}
"""Every optimizer by its name."""

globals().update(ALL_OPTIMIZERS)
