"""Sampling from data sharded over processes, as one process would sample from all of it.

Sample i of process r is number `i W + r` of the task, the order from which a `DistributedSampler` deals them out. Every process
draws for all samples, with generators in one state, and keeps what belongs to its own.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import final

import torch
from torch import Tensor

from fopng.core.batch import Batch, sample_count, take
from fopng.core.likelihood import SharedDraws
from fopng.parallel.collectives import Communicator


@final
class ShardedSampler(SharedDraws):
    """One walk over a task's samples.

    Args:
        generator: draws; None for torch's own. In the same state in every process.
        communicator: the processes, each with a shard of the samples.
        labels: whether something is drawn for each sample, too.

    Attributes:
        positions: where the samples of this process stand among all that were chosen.
    """

    def __init__(self, generator: torch.Generator | None, communicator: Communicator, *, labels: bool) -> None:
        self._generator, self._communicator = generator, communicator
        self._labels = labels and communicator.count > 1
        self.positions = torch.empty(0, dtype=torch.int64)
        self._done, self._drawn = 0, 0

    def choose(self, batches: Iterable[Batch], count: int | None, axis: int = 0) -> Iterator[Batch]:
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
        own, total = sample_positions(sum(sample_count(batch, axis) for batch in batches), self._communicator)
        order = torch.arange(total) if count is None else self._shuffled(total)[:count].sort().values
        rows, self.positions = find(own, order)
        yield from pick(batches, rows, axis)

    def choose_for_all(self, batches: Iterable[Batch], count: int) -> Iterator[Batch]:
        """Yield all `count` samples, those of other processes too, in the order that one process would have; they are few."""
        chosen = self.choose(batches, count)
        if self._communicator.count == 1:
            yield from chosen
            return
        singles = [take(batch, torch.tensor([row])) for batch in chosen for row in range(sample_count(batch))]
        found = self._communicator.gather((singles, self.positions))
        placed = [
            (position, sample)
            for samples, positions in found
            for position, sample in zip(positions.tolist(), samples, strict=True)
        ]
        yield from (sample for _, sample in sorted(placed, key=lambda pair: pair[0]))

    def _shuffled(self, total: int) -> Tensor:
        device = "cpu" if self._generator is None else self._generator.device
        return torch.randperm(total, generator=self._generator, device=device).cpu()

    def draw(self, draw: Callable[[Tensor, torch.Generator | None], Tensor], outputs: Tensor) -> Tensor:
        """Draw something for the next of the chosen samples.

        It is drawn for the samples of other processes between them, too, whatever their outputs: each gets what it would in one
        process.

        Args:
            draw: from outputs `[n, ...]`, one row for each sample.
            outputs: of the next samples.
        """
        if not self._labels:
            return draw(outputs, self._generator)
        own = self.positions[self._done : self._done + len(outputs)] - self._drawn
        everyone = outputs.new_zeros(int(own[-1]) + 1, *outputs.shape[1:])
        rows = own.to(outputs.device)
        everyone[rows] = outputs
        self._done, self._drawn = self._done + len(outputs), self._drawn + len(everyone)
        found = draw(everyone, self._generator)
        return found[rows.to(found.device)]

    def finish(self) -> None:
        """End the walk: every generator goes on from where that of one process would."""
        if self._labels and self._generator is not None:
            drawn = self._communicator.gather(self._drawn)
            self._communicator.agree(self._generator, drawn.index(max(drawn)))


def sample_positions(count: int, communicator: Communicator) -> tuple[Tensor, int]:
    """Where the samples of this process stand among all, rising, and how many there are in all.

    Args:
        count: how many samples this process has.
        communicator: the processes.
    """
    counts = communicator.gather(count)
    row = torch.arange(count)
    before = [row.clamp(max=n) + (row < n if rank < communicator.rank else 0) for rank, n in enumerate(counts)]
    return torch.stack(before).sum(0), sum(counts)


def find(own: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Find which numbers of a rising list are wanted, and where each of them stands in what is wanted.

    >>> find(torch.tensor([1, 3, 5]), torch.tensor([0, 1, 5]))
    (tensor([0, 2]), tensor([1, 2]))
    """
    if not len(own):
        none = wanted.new_empty(0)
        return none, none
    row = torch.searchsorted(own, wanted).clamp(max=len(own) - 1)
    here = own[row] == wanted
    return row[here], here.nonzero().squeeze(-1)


def pick(batches: Iterable[Batch], rows: Tensor, axis: int = 0) -> Iterator[Batch]:
    """Yield samples by their numbers, rising, from batches that are walked once."""
    start = 0
    for batch in batches:
        n = sample_count(batch, axis)
        first, last = torch.searchsorted(rows, torch.tensor([start, start + n])).tolist()
        if last > first:
            yield take(batch, rows[first:last] - start, axis)
        start += n
