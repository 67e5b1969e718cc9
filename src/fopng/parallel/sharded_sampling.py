"""A task's samples over several processes: which are drawn, and what is drawn for each, as one process would draw them.

Sample i of process r is number `i W + r` of the task: the order from which a `DistributedSampler` deals them out. Every process
draws for all, with generators in one state, and takes what is its own.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import final

import torch
from torch import Tensor

from fopng.core.batch import Batch, sample_count, take
from fopng.core.likelihood import SharedDraws
from fopng.parallel.collectives import Peers


@final
class Deal(SharedDraws):
    """One look at a task's samples.

    Args:
        generator: draws; None for torch's own. In the same state in every process.
        peers: the processes that have a shard of the samples each.
        labels: whether something is drawn for each sample, too.

    Attributes:
        places: where the samples of this process stand among all that were chosen.
    """

    def __init__(self, generator: torch.Generator | None, peers: Peers, *, labels: bool) -> None:
        self._generator, self.peers = generator, peers
        self._labels = labels and peers.count > 1
        self.places = torch.empty(0, dtype=torch.int64)
        self._done, self._drawn = 0, 0

    def choose(self, batches: Iterable[Batch], count: int | None, axis: int) -> Iterator[Batch]:
        """Yield this process's part of `count` samples drawn uniformly without replacement, in the order of the data.

        Args:
            batches: the data; counted first, then walked again.
            count: how many, of all processes together; None for all.
            axis: the samples' axis.
        """
        if count is None and not self._labels:
            yield from batches
            return
        if count is not None and count < 1:
            raise ValueError(f"Expected a number of samples of at least 1, got {count}.")
        own, total = places(sum(sample_count(batch, axis) for batch in batches), self.peers)
        order = torch.arange(total) if count is None else self._shuffled(total)[:count].sort().values
        rows, self.places = found_in(own, order)
        yield from picked(batches, rows, axis)

    def _shuffled(self, total: int) -> Tensor:
        device = "cpu" if self._generator is None else self._generator.device
        return torch.randperm(total, generator=self._generator, device=device).cpu()

    def draw(self, draw: Callable[[Tensor, torch.Generator | None], Tensor], outputs: Tensor) -> Tensor:
        """Draw something for the next of the samples that were chosen.

        For those of other processes that stand between them, too, whatever their outputs: each gets what it would in one process.

        Args:
            draw: from outputs `[n, ...]`, a row a sample.
            outputs: of the next samples.
        """
        if not self._labels:
            return draw(outputs, self._generator)
        own = self.places[self._done : self._done + len(outputs)] - self._drawn
        everyone = outputs.new_zeros(int(own[-1]) + 1, *outputs.shape[1:])
        rows = own.to(outputs.device)
        everyone[rows] = outputs
        self._done, self._drawn = self._done + len(outputs), self._drawn + len(everyone)
        found = draw(everyone, self._generator)
        return found[rows.to(found.device)]

    def settle(self) -> None:
        """End the look: everyone's generator goes on from where that of one process would."""
        if self._labels and self._generator is not None:
            drawn = self.peers.gather(self._drawn)
            self.peers.agree(self._generator, drawn.index(max(drawn)))


def places(count: int, peers: Peers) -> tuple[Tensor, int]:
    """Where the samples of this process stand among all, rising, and how many there are in all.

    Args:
        count: how many samples this process has.
        peers: the processes.
    """
    counts = peers.gather(count)
    row = torch.arange(count)
    before = [row.clamp(max=n) + (row < n if process < peers.number else 0) for process, n in enumerate(counts)]
    return torch.stack(before).sum(0), sum(counts)


def found_in(own: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Which numbers of a rising list are wanted, and where each of them stands in what is wanted.

    >>> found_in(torch.tensor([1, 3, 5]), torch.tensor([0, 1, 5]))
    (tensor([0, 2]), tensor([1, 2]))
    """
    if not len(own):
        none = wanted.new_empty(0)
        return none, none
    row = torch.searchsorted(own, wanted).clamp(max=len(own) - 1)
    here = own[row] == wanted
    return row[here], here.nonzero().squeeze(-1)


def picked(batches: Iterable[Batch], rows: Tensor, axis: int = 0) -> Iterator[Batch]:
    """Yield samples by their numbers, rising, from batches that are walked once."""
    start = 0
    for batch in batches:
        n = sample_count(batch, axis)
        first, last = torch.searchsorted(rows, torch.tensor([start, start + n])).tolist()
        if last > first:
            yield take(batch, rows[first:last] - start, axis)
        start += n


def dealt_out(chosen: Iterable[Batch], deal: Deal, turn: int) -> Iterator[Batch]:
    """Yield this process's share of samples that were chosen from all shards: they are few, and change places.

    `deal.places` then says which of them those are.

    Args:
        chosen: those of this process's shard.
        deal: the look in which they were chosen.
        turn: who is first; another from task to task, so that everyone has as many in the end.
    """
    peers = deal.peers
    if peers.count == 1:
        yield from chosen
        return
    # which sample stands where is known once they are chosen
    batches = list(chosen)
    found = peers.gather((batches, deal.places))
    count = sum(len(stand) for _, stand in found)
    mine = [owner(place, count, turn, peers.count) == peers.number for place in range(count)]
    deal.places = torch.empty(0, dtype=torch.int64)
    for own, stand in found:
        for batch, here in zip(own, stand.split([sample_count(batch) for batch in own]), strict=True):
            rows = torch.tensor([row for row, place in enumerate(here.tolist()) if mine[place]], dtype=torch.int64)
            if len(rows):
                deal.places = torch.cat([deal.places, here[rows]])
                yield take(batch, rows)


def owner(row: int, rows: int, turn: int, processes: int) -> int:
    """Which process has a row of a task: neighbours together, so that each keeps its part when rows are thinned out evenly.

    Args:
        row: its number.
        rows: how many the task has.
        turn: who is first.
        processes: how many there are, W.

    >>> [owner(row, 6, 1, 3) for row in range(6)]
    [1, 1, 2, 2, 0, 0]
    """
    return (row * processes // rows + turn) % processes
