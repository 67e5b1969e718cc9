"""Samples that a method keeps to rehearse: blocks of them, drawn by key in every step.

Axes: `...` replicas, `n` sample. A block holds samples that can be joined: of one task, unless all tasks are answered alike.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, final

import torch
from torch import Tensor

from fopng.core.batch import Batch, map_tensors, tensors_of
from fopng.core.keyed_random import choose_rows, scrambled
from fopng.core.likelihood import Likelihood
from fopng.memory.replay_draws import Learnt, Sampled, TaskSamples, join_alike, take_rows
from fopng.parallel.collectives import ALONE, Peers
from fopng.parallel.sharded_sampling import found_in

Place: TypeAlias = tuple[Batch, Tensor, Tensor, Tensor | None]


@final
@dataclass(frozen=True)
class Drawn:
    """Samples to rehearse in a step.

    Args:
        batch: `[..., n, ...]`.
        shares: the weight of each sample, `[..., n]`.
        answers: what is to be answered, `[..., n, *outputs]`; None for the batch's own targets.
        path: the parameters that it was answered through when its task ended; none where nobody need ask.
        temperature: by which both sides are divided before answers are compared; a number, or one a replica `[...]`.
    """

    batch: Batch
    shares: Tensor
    answers: Tensor | None
    path: Sequence[str] = ()
    temperature: float | Tensor = 1.0

    def signal(self, likelihood: Likelihood, outputs: Tensor, targets: Tensor | None) -> Tensor:
        """Differentiate the loss, `-sum_n share_n mean log p(target_n | outputs_n)`, with respect to the outputs."""
        axes = self.shares.dim()
        if self.answers is not None:
            s = likelihood.distilled(outputs, self.answers.to(outputs), _above(self.temperature, outputs))
            s = s if targets is None else s * likelihood.counted(outputs, targets)
        else:
            assert targets is not None
            s = likelihood.observed(outputs, targets)
        weight = self.shares.to(outputs) / likelihood.target_counts(outputs, targets, axes)
        return -s * weight.reshape(*weight.shape, *[1] * (s.dim() - axes))


def _above(setting: float | Tensor, outputs: Tensor) -> float | Tensor:
    """A setting as it multiplies outputs `[..., n, *outputs]`."""
    if not isinstance(setting, Tensor):
        return setting
    return setting.reshape(*setting.shape, *[1] * (outputs.dim() - setting.dim()))


class Rehearser(Protocol):
    """The model in the middle of a step, as a method may ask it about samples of its own."""

    def gradient(self, drawn: Drawn) -> Tensor:
        """The gradient of the loss on these samples now, `[..., p]`."""
        ...

    def gradients(self, drawn: Sequence[Drawn]) -> Tensor:
        """The gradient on each of these draws, one at least, `[..., k, p]`."""
        ...

    def together(self, g: Tensor) -> Tensor:
        """What all processes have found, each on samples of its own, `[..., p]` or `[..., k, p]`."""
        ...


@final
@dataclass(frozen=True)
class Block:
    """Samples that can be joined, in the order of their ranks.

    Args:
        batch: their inputs and targets, `[..., n, ...]`.
        ranks: random numbers, int64 `[..., n]`, falling: those that are kept the longest come first.
        members: how many of the first samples count, int64 `[...]`; the others fill up, where replicas differ.
        answers: what an older model answered, `[..., n, *outputs]`, to be answered again; None for the targets.
        task: the number of the task that they are of, or whose head is asked.
        held: which of the samples this process has, int64, rising: batch and answers are of those. None for all.
    """

    batch: Batch
    ranks: Tensor
    members: Tensor
    answers: Tensor | None
    task: int
    held: Tensor | None = None

    @classmethod
    def of(cls, sampled: Sampled, task: int, answers: Tensor | None = None) -> "Block":
        """Samples as they were drawn."""
        rows = sampled.ranks.shape[-1]
        members = torch.full(sampled.ranks.shape[:-1], rows, device=sampled.ranks.device)
        return cls(sampled.batch, sampled.ranks, members, answers, task, sampled.held)

    @property
    def rows(self) -> int:
        """The number of samples, n."""
        return self.ranks.shape[-1]

    @property
    def tensors(self) -> Place:
        """All that is held."""
        return self.batch, self.ranks, self.members, self.answers

    def mapped(self, function: Callable[[Tensor], Tensor]) -> "Block":
        """Every tensor changed."""
        batch, ranks, members, answers = map_tensors(function, self.tensors)
        held = None if self.held is None else self.held.to(ranks.device)
        return Block(batch, ranks, members, answers, self.task, held)

    def counted_ranks(self) -> Tensor:
        """The ranks, -1 for what fills up."""
        rows = torch.arange(self.rows, device=self.ranks.device)
        return torch.where(rows < self.members.unsqueeze(-1), self.ranks, -1)

    def cut(self, members: Tensor) -> "Block":
        """The first samples alone, so many `[...]` of each replica."""
        first = torch.arange(int(members.max()), device=members.device)
        batch, answers, places = self._taken(first)
        ranks = take_rows(self.ranks, first.expand(*members.shape, len(first)))
        return Block(batch, ranks, members, answers, self.task, places)

    def joined(self, other: "Block") -> "Block | None":
        """Both as one; None where they do not go together."""
        batches = join_alike([self.batch, other.batch], self.ranks.dim() - 1)
        if len(batches) > 1 or self.answers is not None or other.answers is not None:
            return None
        # what fills up comes last, in every replica
        ranks, order = torch.cat([self.counted_ranks(), other.counted_ranks()], -1).sort(-1, descending=True)
        members = self.members + other.members
        if self.held is None or other.held is None:
            return Block(take_rows(batches[0], order), ranks, members, None, self.task)
        # where each of the samples here has gone
        held, rows = order.argsort()[torch.cat([self.held, other.held + self.rows])].sort()
        return Block(take_rows(batches[0], rows), ranks, members, None, self.task, held)

    def _taken(self, index: Tensor) -> tuple[Batch, Tensor | None, Tensor | None]:
        """Those of the samples of these numbers, `[..., k]`, that are here, their answers, and which of the numbers (None: all)."""
        rows, places = index.expand(*self.members.shape, index.shape[-1]), None
        if self.held is not None:
            rows, places = found_in(self.held, index)
        batch, answers = take_rows((self.batch, self.answers), rows)
        return batch, answers, places

    def whole(self, peers: Peers) -> "Block":
        """The block as one process would have it."""
        if self.held is None:
            return self
        found = peers.gather((self.batch, self.answers, self.held))
        order = torch.cat([held for _, _, held in found]).argsort()
        # samples that could not be joined are all in one process
        [(batch, answers)] = join_alike([(batch, answers) for batch, answers, held in found if len(held)], 0)
        return replace(self, batch=take_rows(batch, order), answers=_rows_of(answers, order), held=None)

    def dealt(self, peers: Peers) -> "Block":
        """A part of it for each process."""
        if peers.count == 1:
            return self
        held = torch.tensor(peers.turns(self.rows), dtype=torch.int64, device=self.ranks.device)
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
        return Drawn(batch, shares if here is None else shares[here], answers)


def _rows_of(answers: Tensor | None, index: Tensor) -> Tensor | None:
    return None if answers is None else answers[index.to(answers.device)]


@final
class SampleMemory:
    """The samples that a method keeps, and what they are drawn with.

    Attributes:
        blocks: the samples.
        learnt: the tasks that were, in order.
        counters: what a step changes: `drawn`, how often samples were drawn; and `key`, which decides the draws.
    """

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.learnt: list[Learnt] = []
        self.counters: dict[str, Tensor] = {}
        self._like = torch.empty(0)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(t.numel() * t.element_size() for block in self.blocks for t in tensors_of(block.tensors))

    def seed(self, sampling: TaskSamples, place: torch.device) -> None:
        """Take a key from the run's own randomness, once, to where the samples are."""
        if not self.counters:
            key = sampling.key().to(place)
            self.counters = {"key": key, "drawn": torch.zeros_like(key)}

    def add(self, blocks: Iterable[Block], *, together: bool) -> None:
        """Keep more samples, joined to those that are there where all tasks are answered alike."""
        for block in blocks:
            for number, old in enumerate(self.blocks if together else []):
                if (joined := old.joined(block)) is not None:
                    self.blocks[number] = joined
                    break
            else:
                self.blocks.append(block)

    def limit(self, capacity: int) -> None:
        """Keep the samples of the highest ranks: of all that were ever added, each is as likely to be here as any other."""
        ranks = torch.cat([block.counted_ranks() for block in self.blocks], -1)
        if ranks.shape[-1] <= capacity:
            return
        least = ranks.topk(capacity).values[..., -1:].clamp(min=0)
        left = [(block, (block.counted_ranks() >= least).sum(-1)) for block in self.blocks]
        self.blocks = [block.cut(members) for block, members in left if bool(members.any())]

    def draw(self, count: int | None) -> list[Drawn]:
        """About `count` samples (None for all), as many of each block, in weights that add up to one; others each time."""
        return self._drawn(self._next_key(), self.blocks, count) if self.blocks else []

    def draw_by_task(self, count: int | None) -> list[list[Drawn]]:
        """About `count` samples (None for all) of each task, in weights that add up to one for each."""
        if not self.blocks:
            return []
        key = self._next_key()
        tasks = dict.fromkeys(block.task for block in self.blocks)
        return [self._drawn(key, [b for b in self.blocks if b.task == task], count) for task in tasks]

    def _next_key(self) -> Tensor:
        key = scrambled(self.counters["key"] ^ scrambled(self.counters["drawn"]))
        self.counters["drawn"] = self.counters["drawn"] + 1
        return key

    def _drawn(self, key: Tensor, blocks: Sequence[Block], count: int | None) -> list[Drawn]:
        total = sum((block.members for block in blocks), torch.zeros_like(key)).clamp(min=1)
        each = [block.rows if count is None else -(-count // len(blocks)) for block in blocks]
        drawn = [block.draw(key + 2 * block.task + 1, n, total) for n, block in zip(each, blocks, strict=True)]
        return [replace(d, path=self.learnt[block.task].path) for d, block in zip(drawn, blocks, strict=True)]

    def follow(self, like: Tensor) -> None:
        """Go where the model went: tensors that were on its device, or of its precision, are so again.

        Args:
            like: one of the model's parameters.
        """
        old, self._like = self._like, torch.empty(0, dtype=like.dtype, device=like.device)
        if (old.device, old.dtype) == (like.device, like.dtype):
            return

        def moved(tensor: Tensor) -> Tensor:
            device = like.device if tensor.device == old.device else tensor.device
            return tensor.to(device, like.dtype if tensor.dtype == old.dtype else tensor.dtype)

        self.blocks = [block.mapped(moved) for block in self.blocks]
        self.counters = {name: moved(value) for name, value in self.counters.items()}

    def state_dict(self, peers: Peers = ALONE) -> dict[str, Any]:
        """The samples of all processes, as plain data and tensors; `near` says which tensors lie where the model does."""
        whole = [block.whole(peers) for block in self.blocks]
        blocks = [
            {
                **{name: value for name, value in vars(block).items() if name != "held"},
                "near": [t.device == self._like.device for t in tensors_of(block.tensors)],
            }
            for block in whole
        ]
        learnt = [vars(task) for task in self.learnt]
        return {"blocks": blocks, "learnt": learnt, "counters": dict(self.counters), "like": self._like}

    def load_state_dict(self, state: dict[str, Any], like: Tensor, peers: Peers = ALONE) -> None:
        """Take samples over, each process a part of them, onto the device of `like`; their precision is changed by `follow`."""
        self._like = torch.empty(0, dtype=state["like"].dtype, device=like.device)
        self.learnt, self.blocks = [Learnt(**task) for task in state["learnt"]], []
        for saved in state["blocks"]:
            near = iter(saved["near"])
            block = Block(**{name: value for name, value in saved.items() if name != "near"})
            block = block.dealt(peers)
            self.blocks.append(block.mapped(lambda t, near=near: t.to(like.device) if next(near) else t))  # type: ignore[misc]
        self.counters = {name: value.to(like.device) for name, value in state["counters"].items()}
