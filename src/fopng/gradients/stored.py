"""What a memory of gradients is, wherever its directions are held."""

import json
import warnings
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator
from typing import TypeAlias

import torch
from torch import Tensor

from fopng.core.layout import ParamLayout
from fopng.gradients.directions import Basis
from fopng.gradients.layers import LayerGradients, SampleGradients
from fopng.gradients.segments import Names

Pieces: TypeAlias = list[tuple[slice, LayerGradients, Tensor | None]]
"""Of one layer: the directions that each piece belongs to, its gradients, their diagonal weight."""


class MemoryFull(UserWarning):
    """Stored gradients were dropped because the memory reached its capacity."""


class StoredGradients(Basis):
    """Gradients of old tasks, `G [p, m]`, layer by layer, each task's with an optional diagonal weight.

    Attributes:
        layout: the flat order of the parameters.
        capacity: the most directions kept; None for no limit.
        shares: how many directions each task has; of a memory that was compressed, the first share is what all tasks before have.
        dropped: how many directions were dropped.
        error: the share of the squared length of all directions ever stored that was lost in compression, `[...]`; None before.
    """

    def __init__(self, layout: ParamLayout, capacity: int | None) -> None:
        if capacity is not None and capacity < 1:
            raise ValueError(f"Expected a capacity of at least 1 direction, got {capacity}.")
        self.layout, self.capacity = layout, capacity
        self.shares: list[int] = []
        self.dropped = 0
        self.error: Tensor | None = None

    @property
    def count(self) -> int:
        """The number of directions, m."""
        return sum(self.shares)

    @property
    def size(self) -> int:
        """The number of parameters, p."""
        return self.layout.size

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes held in this process, weights included."""

    @property
    @abstractmethod
    def layers(self) -> tuple[Names, ...]:
        """The layers that hold gradients, each by the names of its parameters."""

    @property
    @abstractmethod
    def weighted(self) -> bool:
        """Whether any gradients have a weight."""

    @property
    @abstractmethod
    def latest(self) -> frozenset[str]:
        """The parameters that the gradients stored last reach."""

    @property
    @abstractmethod
    def terms(self) -> dict[str, int]:
        """How many rank-one terms make a gradient, for the weights whose gradients are all factored."""

    @property
    @abstractmethod
    def like(self) -> Tensor:
        """A tensor of the device and precision of those held; the memory must not be empty."""

    @abstractmethod
    def empty(self, layout: ParamLayout) -> "StoredGradients":
        """Another memory of the same kind, with nothing in it."""

    @abstractmethod
    def turns(self, count: int) -> range:
        """Which of so many new directions are to be appended in this process."""

    @abstractmethod
    def append(self, *gradients: SampleGradients, weight: Tensor | None = None) -> None:
        """Store the gradients of one more task.

        Args:
            gradients: of its samples, in as many blocks as they came.
            weight: a diagonal `[..., p]` that multiplies each of them.
        """

    @abstractmethod
    def only(self, names: Collection[str]) -> "StoredGradients":
        """Look at the layers that have one of these parameters; the gradients themselves are shared, not copied."""

    @abstractmethod
    def mapped(self, change: Callable[[Names, LayerGradients], LayerGradients]) -> "StoredGradients":
        """The same directions, each layer's changed: what a Fisher that is a block a layer makes of them."""

    @abstractmethod
    def blocks(self) -> Iterator[tuple[Names, Pieces]]:
        """All that is held, layer by layer."""

    @abstractmethod
    def relayout(self, layout: ParamLayout) -> None:
        """Go on with a model that has more parameters (a new head): the stored gradients are zero there."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Tensor], like: Tensor | None = None) -> None:
        """Take over what `state_dict` gave.

        Args:
            state: that.
            like: a tensor of the device and precision to hold it in; None for those that it has.
        """

    def state_dict(self) -> dict[str, Tensor]:
        """All that is held, as plain tensors: `shares`, `dropped`, and `[layer, row, name]` for each factor and weight."""
        state = {"shares": torch.tensor(self.shares, dtype=torch.int64), "dropped": torch.tensor(self.dropped)}
        state |= {} if self.error is None else {"error": self.error}
        for names, pieces in self.blocks():
            for rows, gradients, weight in pieces:
                held = gradients.tensors() | ({} if weight is None else {"weight": weight})
                state |= {json.dumps([names, rows.start, name]): self.saved(tensor) for name, tensor in held.items()}
        return state

    def saved(self, tensor: Tensor) -> Tensor:
        """A tensor as it stands in the state."""
        return tensor

    def check_room(self) -> None:
        """Raise where one more task could not have a single direction."""
        tasks = len(self.shares) + 1
        if self.capacity is not None and self.capacity < tasks:
            raise ValueError(
                f"Expected room for a direction of each of {tasks} tasks, got max_directions={self.capacity}. Raise it."
            )

    def thinned(self) -> list[int] | None:
        """Drop all but evenly spaced directions of every task where there are too many; which are kept, None for all."""
        if self.capacity is None or self.count <= self.capacity:
            return None
        before, shares = self.count, even_shares(self.shares, self.capacity)
        keep, start = [], 0
        for old, new in zip(self.shares, shares, strict=True):
            keep += [start + (k * old) // new for k in range(new)]
            start += old
        self.shares = shares
        self.dropped += before - self.count
        warnings.warn(
            f"The gradient memory is full (max_directions={self.capacity}): kept {shares} directions of {len(shares)} tasks, "
            f"dropped {before - self.count}. Raise max_directions or lower gradients_per_task.",
            MemoryFull,
            stacklevel=4,
        )
        return keep


def even_shares(shares: list[int], capacity: int) -> list[int]:
    """Cut the largest shares until all fit: every task ends with the same number, or all it had.

    >>> even_shares([5, 5, 1], 8)
    [4, 3, 1]
    """
    level = capacity
    while sum(min(share, level) for share in shares) > capacity:
        level -= 1
    even = [min(share, level) for share in shares]
    for k, share in enumerate(shares):
        if sum(even) < capacity and share > level:
            even[k] += 1
    return even


def apart(names: Names, layout: ParamLayout) -> list[Names]:
    """A layer's parameters as they lie in another layout: together, or one by one where they are no longer neighbours."""
    return [names] if layout.runs(names) == [names] else [(name,) for name in names]
