"""Where a tensor lies within a model's parameters: all of one, a slice of it, transposed, by its memory."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Place:
    """A view of a parameter.

    Args:
        name: of the parameter.
        shape: of the parameter.
        size: of the view.
        strides: of the view, in a parameter that lies in one piece; None where the view is the parameter itself.
        offset: of its first entry.
    """

    name: str
    shape: torch.Size
    size: torch.Size
    strides: tuple[int, ...] | None = None
    offset: int = 0

    def spread(self, rows: Tensor) -> Tensor:
        """Gradients of the view, `[n, *size]`, as those of the parameter, `[n, *shape]`: zero outside the view."""
        if self.strides is None:
            return rows
        whole = rows.new_zeros(len(rows), self.shape.numel())
        whole.as_strided(rows.shape, (whole.shape[1], *self.strides), self.offset).copy_(rows)
        return whole.reshape(len(rows), *self.shape)

    def corner(self) -> tuple[int, int, bool] | None:
        """Of a view of a matrix: its first row and column, and whether it is transposed; None where it is no block of one."""
        if self.strides is None:
            return (0, 0, False) if len(self.size) == 2 else None
        columns = self.shape[-1]
        if len(self.size) != 2 or self.shape.numel() != self.shape[-2:].numel() or len(self.shape) < 2:
            return None
        (row, column), (high, wide) = self.strides, self.size
        first = divmod(self.offset, columns)
        if (row == columns or high == 1) and (column == 1 or wide == 1):
            return (*first, False)
        if (column == columns or wide == 1) and (row == 1 or high == 1):
            return (*first, True)
        return None


class Places:
    """Finds tensors in the parameters of a model.

    Args:
        values: the parameters, those of one replica.
    """

    def __init__(self, values: Mapping[str, Tensor]) -> None:
        held = sorted((value.data_ptr(), name) for name, value in values.items() if value.numel())
        self._starts, self._names = [start for start, _ in held], [name for _, name in held]
        self._values = values

    def owner(self, tensor: Tensor) -> str | None:
        """The parameter that a tensor shares its memory with."""
        if not self._starts or tensor.layout != torch.strided or not tensor.numel():
            return None
        try:
            start = tensor.data_ptr()
        except RuntimeError:
            # a tensor of a kind that has no memory of its own
            return None
        k = bisect_right(self._starts, start) - 1
        if k < 0:
            return None
        value = self._values[self._names[k]]
        inside = start < self._starts[k] + value.numel() * value.element_size() and tensor.device == value.device
        return self._names[k] if inside else None

    def find(self, tensor: Tensor) -> Place | None:
        """Where a tensor lies; None where that is in no parameter, or where it repeats entries of one."""
        name = self.owner(tensor)
        if name is None:
            return None
        value = self._values[name]
        if tensor.dtype != value.dtype:
            return None
        if (tensor.shape, tensor.stride()) == (value.shape, value.stride()) and tensor.data_ptr() == value.data_ptr():
            return Place(name, value.shape, value.shape)
        repeated = any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))
        if repeated or not value.is_contiguous():
            return None
        offset = (tensor.data_ptr() - value.data_ptr()) // value.element_size()
        return Place(name, value.shape, tensor.shape, tensor.stride(), offset)
