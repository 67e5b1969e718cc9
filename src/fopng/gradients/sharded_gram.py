"""Rows `R [m, p]` that are spread over several processes: their Gram matrix, their order, and pieces of them put together."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from fopng.gradients.directions import outer_square
from fopng.gradients.layers import layer_gradients
from fopng.gradients.segments import Segment
from fopng.parallel.collectives import Peers

SLAB_BYTES = 64 * 2**20
"""How much of the rows is written out at a time."""


def spread_gram(slab: Callable[[slice], Tensor], size: int, owned: Sequence[Sequence[int]], peers: Peers) -> Tensor:
    """`R R^T [m, m]` in float64, the same in every process, each of which does its part of the columns.

    Args:
        slab: writes some columns of this process's rows out, `[own, columns]`.
        size: the number of columns, p.
        owned: which rows each process has.
        peers: the processes.
    """
    counts = [len(rows) for rows in owned]
    m = sum(counts)
    one = slab(slice(0, 1))
    gram = torch.zeros(m, m, dtype=torch.float64, device=one.device)
    # everyone must cut alike, and holds its own rows in all columns, then all rows in its own
    share = SLAB_BYTES // (one.element_size() * max(*counts, -(-m // peers.count)) * peers.count)
    width = max(1, share) * peers.count
    for start in range(0, size, width):
        rows = peers.columns(slab(slice(start, min(start + width, size))), counts)
        gram += outer_square(rows)
    return in_order(in_order(peers.sum(gram), owned, 0), owned, 1)


def in_order(found: Tensor, owned: Sequence[Sequence[int]], axis: int) -> Tensor:
    """What was found process by process, row by row."""
    numbers = torch.tensor([row for rows in owned for row in rows], dtype=torch.int64, device=found.device)
    return found.index_select(axis, numbers.argsort())


Found: TypeAlias = tuple[list[int], dict[str, Tensor], Tensor | None]
"""Rows of a layer as a process holds them: their numbers, the tensors of their gradients, their diagonal weight."""


def joined(found: Iterable[Found], size: int, shares: Sequence[int]) -> list[Segment]:
    """The rows of a layer as one process would hold them.

    Args:
        found: those of all processes.
        size: how many parameters the layer has.
        shares: how many rows each task has: a weight is a task's.
    """
    ends = torch.tensor(shares).cumsum(0)
    kinds: dict[object, list[Found]] = {}
    for rows, tensors, weight in found:
        forms = tuple((name, tensor.shape[1:]) for name, tensor in tensors.items())
        task = None if weight is None else int(torch.searchsorted(ends, rows[0], right=True))
        kinds.setdefault((forms, task), []).append((rows, tensors, weight))
    made = [segment for alike in kinds.values() for segment in _runs(alike, size)]
    return sorted(made, key=lambda segment: segment.start)


def _runs(alike: Sequence[Found], size: int) -> Iterator[Segment]:
    """Rows that can be joined, wherever their numbers follow one another."""
    numbers, order = torch.tensor([row for rows, _, _ in alike for row in rows]).sort()
    whole = {name: torch.cat([tensors[name] for _, tensors, _ in alike]) for name in alike[0][1]}
    cuts = (numbers.diff() != 1).nonzero().squeeze(-1) + 1
    for run, start in zip(order.tensor_split(cuts), [0, *cuts.tolist()], strict=True):
        tensors = {name: tensor[run.to(tensor.device)] for name, tensor in whole.items()}
        yield Segment(int(numbers[start]), layer_gradients(tensors, size=size), alike[0][2])
