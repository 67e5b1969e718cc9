"""Drawing samples to keep from a task's batches, of any structure, and joining those that are alike."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, final

import torch
from torch import Tensor

from fopng.core.batch import (
    Batch,
    PredictTask,
    TaskName,
    form_of,
    join,
    map_tensors,
    predict_pairs,
    sample_count,
    take,
    tensors_of,
)
from fopng.core.tree import node
from fopng.core.vector import Vector
from fopng.curvature.estimate import output_sensitivity
from fopng.curvature.sampling import LoaderStream, check_rewindable
from fopng.gradients.per_sample import PerSampleGradients
from fopng.parallel.collectives import SINGLE_PROCESS, Communicator
from fopng.parallel.sharded_sampling import find, pick, sample_positions

RANKS = 2**53
"""Ranks are drawn from so many numbers: no two are the same."""

KEYS = 2**32
"""Keys are drawn from so many."""

FEW = 8
"""So many samples tell whether tasks are answered alike."""

_ASKED = 256


@final
@dataclass(frozen=True)
class Sampled:
    """Samples drawn from a task.

    Args:
        batch: those that this process has, `[..., n, ...]`.
        ranks: of all of them, int64 `[..., m]`, falling.
        held: which of all this process has, int64 `[n]`, rising; None for all.
    """

    batch: Batch
    ranks: Tensor
    held: Tensor | None = None


@node
@final
@dataclass(frozen=True)
class Learnt:
    """A task as its batches tell.

    Args:
        name: what they call it.
        path: the parameters that its samples are answered through; none where nobody need ask.
    """

    name: TaskName
    path: tuple[str, ...] = ()


class TaskSamples(Protocol):
    """The samples of the task at hand, for a method that keeps some."""

    def draw(self, count: int | None) -> list[Sampled]:
        """Some of them (None for all), each as likely as any other; a member for each kind that cannot be joined."""
        ...

    def check(self, batch: Batch) -> None:
        """Raise for samples that could not be rehearsed, now and not in the middle of a step."""
        ...

    def key(self) -> Tensor:
        """A random number below `KEYS`, int64 `[...]`."""
        ...

    def learnt(self) -> Learnt:
        """The task as its batches tell."""
        ...

    def as_task(self, batch: Batch, task: TaskName) -> Batch:
        """A batch as if it were of another task; the batch itself where batches do not say."""
        ...

    def answers(self, batch: Batch) -> Tensor:
        """What the model answers now, dropout off: `[..., n, *outputs]`."""
        ...

    def answered_alike(self, batch: Batch, tasks: Sequence[TaskName]) -> bool:
        """Whether the model answers a batch in one way, whichever of these tasks it is said to be of."""
        ...

    def alike(self, answers: Sequence[Tensor]) -> bool:
        """Whether all answers are the same, to the bit."""
        ...

    def sensitivity(self, samples: int | None) -> Vector:
        """The mean over samples (so many, or all) of `|d |outputs|^2 / d theta|` now."""
        ...


@final
@dataclass(frozen=True)
class BatchSamples:
    """The samples of a drop-in optimizer's task.

    Args:
        source: the model.
        stream: the task's data, the generator that draws, and the processes: each keeps what is drawn of its shard.
    """

    source: PerSampleGradients
    stream: LoaderStream

    def draw(self, count: int | None) -> list[Sampled]:
        """Some samples."""
        batches, stream = self.stream.batches, self.stream
        check_rewindable(batches)
        own = sum(sample_count(batch) for batch in batches)
        return draw_samples(map(self._named, batches), own, count, stream.random, stream.communicator)

    def check(self, batch: Batch) -> None:
        """Raise unless every sample has a target, and the model an output for it."""
        for part in _parts(batch) if sample_count(batch) else ():
            outputs, targets = self.source.answers(part)
            if targets is None:
                raise ValueError("Expected targets of the samples to rehearse, got None. Return them from predict.")
            self.source.likelihood.check(outputs, targets)

    def key(self) -> Tensor:
        """A random number."""
        return torch.randint(KEYS, (), generator=self.stream.random, device=_device(self.stream.random))

    def learnt(self) -> Learnt:
        """From the first batch."""
        predict, first = self.source.predict, next(batch for batch in self.stream.batches if sample_count(batch))
        name = predict.task_of(first) if isinstance(predict, PredictTask) else None
        return Learnt(name, tuple(self.source.path(take(first, torch.arange(min(FEW, sample_count(first)))))))

    def as_task(self, batch: Batch, task: TaskName) -> Batch:
        """A batch as if it were of another task, where predict knows how."""
        predict = self.source.predict
        return predict.as_task(batch, task) if isinstance(predict, PredictTask) else batch

    def answers(self, batch: Batch) -> Tensor:
        """What the model answers, in chunks."""
        return torch.cat([self.source.answers(part)[0] for part in _parts(batch)])

    def answered_alike(self, batch: Batch, tasks: Sequence[TaskName]) -> bool:
        """Whether the outputs are the same; batches that are pairs have no task, and of others nothing is known."""
        if not isinstance(self.source.predict, PredictTask):
            return self.source.predict is predict_pairs
        few = take(batch, torch.arange(min(FEW, sample_count(batch))))
        return self.alike([self.source.answers(self.as_task(few, task))[0] for task in tasks])

    def alike(self, answers: Sequence[Tensor]) -> bool:
        """Whether all answers are the same, to the bit, in every process."""
        return self.stream.communicator.everywhere(same_answers(answers))

    def sensitivity(self, samples: int | None) -> Vector:
        """The mean over samples of `|d |outputs|^2 / d theta|`."""
        return output_sensitivity(self.source, self.stream, samples=samples)

    def _named(self, batch: Batch) -> Batch:
        """A batch whose task is said once, not sample by sample."""
        predict = self.source.predict
        return predict.as_task(batch, predict.task_of(batch)) if isinstance(predict, PredictTask) else batch


def _parts(batch: Batch) -> Iterator[Batch]:
    for rows in torch.arange(sample_count(batch)).split(_ASKED):
        yield take(batch, rows)


def _device(generator: torch.Generator | None) -> torch.device:
    return torch.device("cpu") if generator is None else generator.device


def same_answers(answers: Sequence[Tensor]) -> bool:
    """Whether all answers are the same, to the bit."""
    return all(torch.equal(answers[0], other) for other in answers[1:])


def draw_samples(
    batches: Iterable[Batch],
    own: int,
    count: int | None,
    generator: torch.Generator | None,
    communicator: Communicator = SINGLE_PROCESS,
) -> list[Sampled]:
    """Draw samples uniformly without replacement, with their ranks.

    Args:
        batches: the data of this process, walked once.
        own: how many samples they have.
        count: how many to draw, of all processes together; None for all.
        generator: draws.
        communicator: the processes.
    """
    stand, total = sample_positions(own, communicator)
    ranks = torch.randint(RANKS, (total,), generator=generator, device=_device(generator)).cpu()
    chosen = ranks.topk(total if count is None else min(count, total)).indices.sort().values
    rows, among = find(stand, chosen)
    parts, start = [], 0
    for batch in pick(batches, rows):
        _check_plain(batch)
        here = chosen[among[start : start + sample_count(batch)]]
        parts.append((batch, ranks[here].to(tensors_of(batch)[0].device)))
        start += len(here)
    kinds = join_alike(parts, 0)
    return [_in_order(*kind) for kind in kinds] if communicator.count == 1 else _kinds_of_all(kinds, communicator)


def _in_order(batch: Batch, ranks: Tensor) -> Sampled:
    order = ranks.argsort(descending=True)
    return Sampled(take_rows(batch, order), ranks[order])


def _kinds_of_all(kinds: Sequence[tuple[Batch, Tensor]], communicator: Communicator) -> list[Sampled]:
    """The kinds that any process has samples of, the same list everywhere; of some, a process may have none."""
    nothing = torch.empty(0, dtype=torch.int64)
    told = [(take((batch, ranks), nothing), ranks) for batch, ranks in kinds]
    groups: list[tuple[Any, Batch, dict[int, tuple[int, Tensor]]]] = []
    for process, found in enumerate(communicator.gather(told)):
        for number, ((example, _), ranks) in enumerate(found):
            form = form_of(example, 0, 0)
            members = next((group[2] for group in groups if group[0] == form and process not in group[2]), None)
            if members is None:
                groups.append((form, example, {process: (number, ranks)}))
            else:
                members[process] = (number, ranks)
    return [_held(group, kinds, communicator.rank) for group in groups]


def _held(
    group: tuple[Any, Batch, dict[int, tuple[int, Tensor]]], kinds: Sequence[tuple[Batch, Tensor]], own: int
) -> Sampled:
    """The samples of one kind: the ranks of all, the batch of this process."""
    _, example, members = group
    ranks = torch.cat([ranks for _, ranks in members.values()]).sort(descending=True).values
    if own not in members:
        return Sampled(example, ranks, torch.empty(0, dtype=torch.int64, device=ranks.device))
    batch, mine = kinds[members[own][0]]
    # no two ranks are the same
    held, order = torch.searchsorted(-ranks, -mine.to(ranks.device)).sort()
    return Sampled(take_rows(batch, order), ranks, held)


def take_rows(batch: Batch, index: Tensor) -> Batch:
    """Pick samples of each replica: int64 `[..., k]` of a batch `[..., n, ...]`; a tensor that is not per sample stays whole."""
    axis = index.dim() - 1
    n = sample_count(batch, axis)
    if axis == 0:
        return take(batch, index)

    def picked(tensor: Tensor) -> Tensor:
        if tensor.dim() <= axis or tensor.shape[axis] != n:
            return tensor
        near = index.to(tensor.device)
        wide = near.reshape(*near.shape, *[1] * (tensor.dim() - axis - 1)).expand(
            *near.shape, *tensor.shape[axis + 1 :]
        )
        return tensor.gather(axis, wide)

    return map_tensors(picked, batch)


def join_alike(batches: Iterable[Batch], axis: int) -> list[Batch]:
    """Put batches that are alike together along the samples' axis; others (of another length, with another text beside) stay apart.

    >>> en, de = (torch.zeros(2, 3), "en"), (torch.zeros(1, 3), "de")
    >>> [(x.shape[0], text) for x, text in join_alike([en, de, en], 0)]
    [(4, 'en'), (1, 'de')]
    """
    groups: list[tuple[Any, list[Batch]]] = []
    for batch in batches:
        form = form_of(batch, axis, sample_count(batch, axis))
        members = next((members for other, members in groups if other == form), None)
        if members is None:
            groups.append((form, [batch]))
        else:
            members.append(batch)
    return [join(members, axis) for _, members in groups]


def _check_plain(batch: Batch) -> None:
    """Raise for what could not be saved and loaded again as it is."""
    if isinstance(batch, (Tensor, type(None), bool, int, float, str)):
        return
    if type(batch) in (tuple, list) or (isinstance(batch, Mapping) and not hasattr(batch, "__dataclass_fields__")):
        for value in batch.values() if isinstance(batch, Mapping) else batch:
            _check_plain(value)
        return
    raise TypeError(
        f"Expected batches of tensors, numbers and texts in tuples, lists and dictionaries, to keep samples of, got a "
        f"{type(batch).__name__}. Let the loader give one of those."
    )
