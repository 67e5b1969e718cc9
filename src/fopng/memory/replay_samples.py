"""Samples that a method keeps to rehearse: blocks of them, drawn by key in every step.

A block holds samples that can be joined: of one task, unless all tasks are answered alike. Axes: `...` replicas, `n` sample.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar, final

import torch
from torch import Tensor

from fopng.core.batch import Batch
from fopng.core.keyed_random import choose_rows, scrambled
from fopng.core.likelihood import Likelihood
from fopng.core.tree import map_tree, node, tensors_in
from fopng.core.vector import Vector, broadcast
from fopng.memory.old_answers import OldAnswers, WholeAnswers
from fopng.memory.replay_draws import Learnt, Sampled, join_alike, take_rows
from fopng.parallel.collectives import Communicator
from fopng.parallel.sharded_sampling import find

T = TypeVar("T")


@final
@dataclass(frozen=True)
class Drawn:
    """Samples to rehearse in a step.

    Args:
        batch: `[..., n, ...]`.
        shares: the weight of each sample, `[..., n]`.
        answers: what is to be answered; None for the batch's own targets.
        path: the parameters that it was answered through when its task ended; none where nobody need ask.
        still: whether statistics of batches are to stay as they are.
        temperature: by which both sides are divided before answers are compared; a number, or one a replica `[...]`.
    """

    batch: Batch
    shares: Tensor
    answers: OldAnswers | None
    path: Sequence[str] = ()
    temperature: float | Tensor = 1.0
    still: bool = False

    def signal(self, likelihood: Likelihood, outputs: Tensor, targets: Tensor | None) -> Tensor:
        """Differentiate the loss, `-sum_n share_n mean log p(target_n | outputs_n)`, with respect to the outputs."""
        axes = self.shares.dim()
        if self.answers is not None:
            s = likelihood.distilled(outputs, self.answers.beside(outputs), broadcast(self.temperature, outputs))
            s = s if targets is None else s * likelihood.counted(outputs, targets)
        else:
            assert targets is not None
            s = likelihood.observed(outputs, targets)
        weight = self.shares.to(outputs) / likelihood.target_counts(outputs, targets, axes)
        return -s * weight.reshape(*weight.shape, *[1] * (s.dim() - axes))


class Rehearser(Protocol):
    """The model in the middle of a step, as a method may ask it about samples of its own."""

    def gradient(self, drawn: Drawn) -> Vector:
        """The gradient of the loss on these samples now, of the parameters that they reach."""
        ...

    def gradients(self, drawn: Sequence[Drawn]) -> Vector:
        """The gradient on each of these draws, one at least, `[..., k, *shape]`."""
        ...

    def together(self, g: Vector) -> Vector:
        """What all processes have found, each on samples of its own."""
        ...

    def divergence(self, drawn: Drawn) -> Tensor:
        """How far the answers to these samples are now from those that are to be answered, dropout off: the mean, `[...]`."""
        ...


@node
@final
@dataclass(frozen=True, eq=False)
class SampleBlock:
    """Samples that can be joined, in the order of their ranks.

    Args:
        batch: their inputs and targets, `[..., n, ...]`.
        ranks: random numbers, int64 `[..., n]`, falling: those that are kept the longest come first.
        members: how many of the first samples count, int64 `[...]`; the others fill up, where replicas differ.
        answers: what an older model answered, `[..., n, *outputs]`, to be answered again; None for the targets.
        task: the number of the task that they are of, or whose head is asked.
        held: which of the samples this process has, int64, rising: batch and answers are of those. None for all.
        near: in a saved block, which of its tensors lay where the model did, in the order of the fields.
    """

    batch: Batch
    ranks: Tensor
    members: Tensor
    answers: Tensor | None
    task: int
    held: Tensor | None = None
    near: tuple[bool, ...] | None = None

    @classmethod
    def of(cls, sampled: Sampled, task: int, answers: Tensor | None = None) -> "SampleBlock":
        """Samples as they were drawn."""
        rows = sampled.ranks.shape[-1]
        members = torch.full(sampled.ranks.shape[:-1], rows, device=sampled.ranks.device)
        return cls(sampled.batch, sampled.ranks, members, answers, task, sampled.held)

    @property
    def rows(self) -> int:
        """The number of samples, n."""
        return self.ranks.shape[-1]

    def counted_ranks(self) -> Tensor:
        """The ranks, -1 for what fills up."""
        rows = torch.arange(self.rows, device=self.ranks.device)
        return torch.where(rows < self.members.unsqueeze(-1), self.ranks, -1)

    def cut(self, members: Tensor) -> "SampleBlock":
        """The first samples alone, so many `[...]` of each replica."""
        first = torch.arange(int(members.max()), device=members.device)
        batch, answers, places = self._taken(first)
        ranks = take_rows(self.ranks, first.expand(*members.shape, len(first)))
        return SampleBlock(batch, ranks, members, answers, self.task, places)

    def joined(self, other: "SampleBlock") -> "SampleBlock | None":
        """Both as one; None where they do not go together."""
        batches = join_alike([self.batch, other.batch], self.ranks.dim() - 1)
        if len(batches) > 1 or self.answers is not None or other.answers is not None:
            return None
        # what fills up comes last, in every replica
        ranks, order = torch.cat([self.counted_ranks(), other.counted_ranks()], -1).sort(-1, descending=True)
        members = self.members + other.members
        if self.held is None or other.held is None:
            return SampleBlock(take_rows(batches[0], order), ranks, members, None, self.task)
        # where each of the samples here has gone
        held, rows = order.argsort()[torch.cat([self.held, other.held + self.rows])].sort()
        return SampleBlock(take_rows(batches[0], rows), ranks, members, None, self.task, held)

    def _taken(self, index: Tensor) -> tuple[Batch, Tensor | None, Tensor | None]:
        """Those of the samples of these numbers, `[..., k]`, that are here, their answers, and which of the numbers (None: all)."""
        rows, places = index.expand(*self.members.shape, index.shape[-1]), None
        if self.held is not None:
            rows, places = find(self.held, index)
        batch, answers = take_rows((self.batch, self.answers), rows)
        return batch, answers, places

    def whole(self, communicator: Communicator) -> "SampleBlock":
        """The block as one process would have it."""
        if self.held is None:
            return self
        found = communicator.gather((self.batch, self.answers, self.held))
        order = torch.cat([held for _, _, held in found]).argsort()
        # samples that could not be joined are all in one process
        [(batch, answers)] = join_alike([(batch, answers) for batch, answers, held in found if len(held)], 0)
        return replace(self, batch=take_rows(batch, order), answers=_rows_of(answers, order), held=None)

    def dealt(self, communicator: Communicator) -> "SampleBlock":
        """A part of it for each process."""
        if communicator.count == 1:
            return self
        held = torch.tensor(communicator.share(self.rows), dtype=torch.int64, device=self.ranks.device)
        return replace(self, batch=take_rows(self.batch, held), answers=_rows_of(self.answers, held), held=held)

    def draw(self, key: Tensor, count: int, total: Tensor) -> Drawn:
        """Some samples, without replacement, with weights that let them speak for the whole block.

        Args:
            key: int64 `[...]`, which alone decides.
            count: how many; all where there are no more.
            total: the number of samples in all blocks, `[...]`.
        """
        count = min(count, self.rows)
        all_of_them = torch.arange(count, device=key.device).expand(*key.shape, count)
        index = choose_rows(key, count, self.rows, self.members) if count < self.rows else all_of_them
        batch, answers, here = self._taken(index)
        share = self.members.double() / (total * self.members.clamp(min=1, max=count))
        shares = torch.where(index < self.members.unsqueeze(-1), share.unsqueeze(-1), 0.0)
        told = None if answers is None else WholeAnswers(answers)
        return Drawn(batch, shares if here is None else shares[here], told)


def _rows_of(answers: Tensor | None, index: Tensor) -> Tensor | None:
    return None if answers is None else answers[index.to(answers.device)]


@node
@final
@dataclass(frozen=True)
class ReplayCounters:
    """What decides the next draw.

    Args:
        key: drawn once from the run's own randomness, int64 `[...]`.
        drawn: how often samples were drawn, `[...]`.
    """

    key: Tensor
    drawn: Tensor

    def next(self) -> tuple[Tensor, "ReplayCounters"]:
        """The key of the next draw, and the counters after it."""
        return scrambled(self.key ^ scrambled(self.drawn)), replace(self, drawn=self.drawn + 1)


@node
@final
@dataclass(frozen=True, eq=False)
class SampleMemory:
    """The samples that a method keeps.

    Args:
        blocks: the samples.
        learnt: the tasks that were, in order.
    """

    blocks: tuple[SampleBlock, ...] = ()
    learnt: tuple[Learnt, ...] = ()

    def added(self, blocks: Iterable[SampleBlock], *, together: bool) -> "SampleMemory":
        """The memory with more samples, joined to those that are there where all tasks are answered alike."""
        held = list(self.blocks)
        for block in blocks:
            for number, old in enumerate(held if together else []):
                if (joined := old.joined(block)) is not None:
                    held[number] = joined
                    break
            else:
                held.append(block)
        return replace(self, blocks=tuple(held))

    def limited(self, capacity: int) -> "SampleMemory":
        """The samples of the highest ranks: of all that were ever added, each is as likely to be here as any other."""
        ranks = torch.cat([block.counted_ranks() for block in self.blocks], -1)
        if ranks.shape[-1] <= capacity:
            return self
        least = ranks.topk(capacity).values[..., -1:].clamp(min=0)
        left = [(block, (block.counted_ranks() >= least).sum(-1)) for block in self.blocks]
        return replace(self, blocks=tuple(block.cut(members) for block, members in left if bool(members.any())))

    def draw(self, counters: ReplayCounters | None, count: int | None) -> tuple[list[Drawn], ReplayCounters | None]:
        """About `count` samples (None for all), as many of each block, in weights that add up to one; others each time."""
        if not self.blocks or counters is None:
            return [], counters
        key, counters = counters.next()
        return self._drawn(key, self.blocks, count), counters

    def draw_by_task(
        self, counters: ReplayCounters | None, count: int | None
    ) -> tuple[list[list[Drawn]], ReplayCounters | None]:
        """About `count` samples (None for all) of each task, in weights that add up to one for each."""
        if not self.blocks or counters is None:
            return [], counters
        key, counters = counters.next()
        tasks = dict.fromkeys(block.task for block in self.blocks)
        return [self._drawn(key, [b for b in self.blocks if b.task == task], count) for task in tasks], counters

    def _drawn(self, key: Tensor, blocks: Sequence[SampleBlock], count: int | None) -> list[Drawn]:
        total = sum((block.members for block in blocks), torch.zeros_like(key)).clamp(min=1)
        each = [block.rows if count is None else -(-count // len(blocks)) for block in blocks]
        drawn = [block.draw(key + 2 * block.task + 1, n, total) for n, block in zip(each, blocks, strict=True)]
        return [replace(d, path=self.learnt[block.task].path) for d, block in zip(drawn, blocks, strict=True)]


def follow_model(samples: T, before: Tensor, after: Tensor) -> T:
    """Go where the model went: tensors that were on its device, or of its precision, are so again.

    Args:
        samples: a tree of them.
        before: a tensor of the kind that the model's parameters had.
        after: one of its parameters now.
    """

    def moved(tensor: Tensor) -> Tensor:
        device = after.device if tensor.device == before.device else tensor.device
        return tensor.to(device, after.dtype if tensor.dtype == before.dtype else tensor.dtype)

    return map_tree(moved, samples)


def whole_memory(memory: SampleMemory, communicator: Communicator, model: torch.device) -> SampleMemory:
    """The samples of all processes, to be saved: each block says which of its tensors lay where the model is."""
    blocks = (block.whole(communicator) for block in memory.blocks)
    noted = (replace(block, near=tuple(t.device == model for t in tensors_in(block))) for block in blocks)
    return replace(memory, blocks=tuple(noted))


def dealt_memory(memory: SampleMemory, communicator: Communicator, model: torch.device) -> SampleMemory:
    """This process's part of samples that were saved, with the model's tensors where the model is now."""

    def placed(block: SampleBlock) -> SampleBlock:
        near = iter(block.near or ())
        moved = map_tree(lambda t: t.to(model) if next(near, True) else t, block)
        return replace(moved, near=None).dealt(communicator)

    return replace(memory, blocks=tuple(map(placed, memory.blocks)))
