"""How a parameter is read as the matrix, or the matrices, that inputs are multiplied with."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from fopng.core.tree import node


@node
@final
@dataclass(frozen=True)
class Form:
    """A parameter as `M [o, i]`, or as `M [groups, o, i]`: a matrix for each group, none of which sees the others' inputs.

    Args:
        groups: how many matrices it holds, by its rows; with one there is no axis for them.
        transposed: whether a matrix is stored as `[i, o]`.
        split: how many axes of the parameter make up the rows of what is stored.
    """

    groups: int = 1
    transposed: bool = False
    split: int = 1

    def matrices(self, weight: Tensor, lead: int) -> Tensor:
        """A parameter `[*lead, *shape]` as `M [*lead, (groups,) o, i]`."""
        if self == PLAIN:
            return weight.flatten(lead + 1)
        shape = weight.shape[lead:]
        rows, columns = shape[: self.split].numel(), shape[self.split :].numel()
        groups = (self.groups,) * (self.groups > 1)
        found = weight.reshape(*weight.shape[:lead], *groups, rows // self.groups, columns)
        return found.mT if self.transposed else found

    def weight(self, matrices: Tensor, lead: int, shape: torch.Size) -> Tensor:
        """`M` as the parameter that it is."""
        stored = matrices.mT if self.transposed else matrices
        return stored.reshape(*matrices.shape[:lead], *shape)

    def bias(self, bias: Tensor) -> Tensor:
        """A bias `[*lead, o]` as that of the groups, `[*lead, (groups,) o]`."""
        return bias if self.groups == 1 else bias.unflatten(-1, (self.groups, -1))

    def whole_bias(self, bias: Tensor) -> Tensor:
        """The groups' biases as one."""
        return bias if self.groups == 1 else bias.flatten(-2)


PLAIN = Form()
"""Rows are outputs, and everything else is inputs: a linear layer, a convolution."""
