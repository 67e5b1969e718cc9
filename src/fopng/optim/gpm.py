"""Gradient Projection Memory (Saha et al., 2021)."""

from abc import abstractmethod
from typing import Annotated, ClassVar, final

import torch
from torch import Tensor

from fopng.memory.input_subspace import Subspace
from fopng.optim.input_base import InputMemory
from fopng.optim.method import About
from fopng.optim.settings import SHARE, SHARE_ABOVE_0, settings


@settings
class MainDirections(InputMemory):
    """Keeps the main directions of what a layer was given: so many that a share of the squared length is left in them."""

    threshold: Annotated[
        float,
        SHARE_ABOVE_0,
        "epsilon, the share of the squared length of each layer's inputs that a task must leave in the memory.",
    ] = 0.95
    threshold_growth: Annotated[float, SHARE, "how much higher it is with each task, up to 1."] = 0.0

    @abstractmethod
    def weigh(self, values: Tensor, old: Tensor) -> Tensor:
        """The importance of directions, from their singular values in the latest task and their importance before."""

    def learn(self, old: Subspace, moment: Tensor, tasks: int) -> Subspace:
        threshold = torch.as_tensor(self.threshold + self.threshold_growth * tasks).clamp(max=1.0)
        return old.learnt(moment, threshold=threshold, weigh=self.weigh)


@final
@settings
class GPM(MainDirections):
    """Gradient Projection Memory: SGD on what is orthogonal to the inputs that old tasks gave each layer.

    When a task ends, the main directions of what each Linear and Conv layer was given join its memory, which is never larger than
    the layer is wide, squared. Gradients of scores, labels and Fishers play no part.
    """

    about: ClassVar[About] = About(
        "gpm", "Gradient projection memory", 2021, "Saha et al.", "directions of layers' inputs"
    )

    def weigh(self, values: Tensor, old: Tensor) -> Tensor:
        return torch.ones_like(values)
