"""The methods by the names that people type."""

from dataclasses import dataclass
from typing import Any, final

from fopng.optim.make_optimizer import explanations_of
from fopng.optim.method import About, Method
from fopng.optim.methods import ALL
from fopng.optim.optimizer import ContinualOptimizer
from fopng.optim.optimizers import ALL_OPTIMIZERS


@final
@dataclass(frozen=True)
class MethodEntry:
    """A method that is known by name.

    Attributes:
        about: its name, title, year, paper, and what it keeps.
        method: its settings and functions.
        optimizer: the class that does it.
        joint: whether it learns all tasks together instead of one after another.
    """

    about: About
    method: type[Method[Any, Any]]
    optimizer: type[ContinualOptimizer]
    joint: bool = False

    @property
    def name(self) -> str:
        """What a user types."""
        return self.about.name

    @property
    def explanations(self) -> dict[str, str]:
        """What each argument of the optimizer is."""
        return explanations_of(self.method)


_JOINT = About("joint", "SGD on all tasks together", 1951, "reference", "all data", True)

METHODS: dict[str, MethodEntry] = {
    **{own.about.name: MethodEntry(own.about, own, ALL_OPTIMIZERS[name]) for name, own in ALL.items()},
    "joint": MethodEntry(_JOINT, ALL["SGD"], ALL_OPTIMIZERS["SGD"], joint=True),
}
"""In the order of the paper's table, then those it has no column for."""
