"""The rows of a gradient memory that one task left in one layer."""

from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor

from fopng.gradients.layers import DenseGradients, LayerGradients

Names: TypeAlias = tuple[str, ...]
"""Neighbouring parameters of one layer."""


@dataclass
class Segment:
    """Neighbouring rows of `G^T` in one layer, with the diagonal weight that multiplies them."""

    start: int
    gradients: LayerGradients
    weight: Tensor | None

    @property
    def rows(self) -> slice:
        """The numbers of the rows."""
        return slice(self.start, self.start + self.gradients.count)

    def slab(self, part: slice) -> Tensor:
        """Write some columns out, the weight included: `[..., m, part]`."""
        dense = self.gradients.slab(part.start, part.stop)
        return dense if self.weight is None else dense * self.weight[..., None, part]

    def only(self, part: slice) -> "Segment":
        """The same rows, written out in some of the columns."""
        weight = None if self.weight is None else self.weight[..., part]
        return Segment(self.start, DenseGradients(self.gradients.slab(part.start, part.stop)), weight)
