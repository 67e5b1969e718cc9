"""Where an estimate's samples come from: how they are chosen, cut into chunks, and added up over processes."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from itertools import chain
from typing import Any, TypeVar, final

import torch
from torch import Tensor

from fopng.core.batch import Batch, NotFinite, regroup, regroup_exactly
from fopng.core.likelihood import Generators
from fopng.core.tree import map_tree
from fopng.core.vector import Vector
from fopng.gradients.per_sample import PerSampleGradients
from fopng.parallel.collectives import SINGLE_PROCESS, Communicator
from fopng.parallel.sharded_sampling import ShardedSampler

Key = TypeVar("Key")
T = TypeVar("T")

MEMORY_LIMIT = 256 * 2**20
"""Bytes that an estimate may hold at a time, by default and at least; on a GPU up to a 64th of its memory."""

_LARGEST_CHUNK = 1024
"""Samples at a time on a CPU, whose caches hold no more; on a GPU what counts is that there are few chunks to start."""


class SampleStream(ABC):
    """The samples of a task: of one run, of a run whose data are sharded over processes, or of replicas."""

    parameters: Vector | None = None
    """The parameters of replicas, `[*lead, *shape]`; None for the model's own."""

    memory_limit: int | None = None
    """Bytes that an estimate holds at a time; None for `held_at_most`."""

    @property
    def axis(self) -> int:
        """The axis of the samples: the number of replica axes."""
        return 0 if self.parameters is None else self.parameters.lead

    @property
    @abstractmethod
    def generator(self) -> Generators:
        """What draws labels and noise for the chunks of the latest walk."""

    @abstractmethod
    def chunks(
        self, source: PerSampleGradients, samples: int | None, *, labels: bool, size: int | None = None
    ) -> Iterator[Batch]:
        """Walk over samples drawn uniformly without replacement, in batches as large as the memory allows.

        Args:
            source: the model.
            samples: how many, of all processes together; None for all.
            labels: whether labels or noise are drawn for them.
            size: how many at a time exactly, whatever the memory.
        """

    @abstractmethod
    def chosen(self, source: PerSampleGradients, count: int) -> Iterator[Batch]:
        """Walk over `count` samples whose gradients are stored, the same ones in every process."""

    @abstractmethod
    def checked(self, tree: T, what: str) -> T:
        """Deal with NaN and infinity in what was found: a single run raises `NotFinite`, a replica is ended and cleared.

        Args:
            tree: Vectors and tensors, by parameters where they belong to some.
            what: they are, for the message.
        """

    def total(self, count: int) -> int:
        """Add a number of samples over the processes."""
        return count

    def sum(self, x: Tensor) -> Tensor:
        """Add a tensor over the processes."""
        return x

    def sum_named(self, named: Mapping[Key, Tensor]) -> dict[Key, Tensor]:
        """Add tensors over the processes by their names; one that a process does not have is zero there."""
        return dict(named)

    def gather(self, x: Tensor) -> tuple[list[Tensor], int]:
        """List the tensor of each process, and which of them is this process's."""
        return [x], 0

    def gather_all(self, tree: T) -> list[T]:
        """List what each process has: tensors in lists and tuples."""
        return [tree]

    def broadcast(self, tree: T) -> T:
        """Copy the numbers of the first process, so that all have the same bits."""
        return tree


@final
class LoaderStream(SampleStream):
    """The batches of one run, or of this process's shard of one.

    Args:
        batches: a loader or a list, walked more than once.
        generator: draws samples, labels and noise; in the same state in every process. None for torch's own.
        communicator: the processes that have a shard each.
        memory_limit: bytes that an estimate holds at a time; None for `held_at_most`.

    Attributes:
        random: the generator.
    """

    def __init__(
        self,
        batches: Iterable[Batch],
        generator: torch.Generator | None = None,
        communicator: Communicator = SINGLE_PROCESS,
        memory_limit: int | None = None,
    ) -> None:
        self.batches, self.communicator = batches, communicator
        self.random, self.memory_limit = generator, memory_limit
        self._sampler = self._new_sampler(labels=False)

    @property
    def generator(self) -> Generators:
        return self._sampler

    def chunks(
        self, source: PerSampleGradients, samples: int | None, *, labels: bool, size: int | None = None
    ) -> Iterator[Batch]:
        check_rewindable(self.batches)
        sampler = self._sampler = self._new_sampler(labels=labels)
        walk = sampler.choose(self.batches, samples)
        yield from self._fitting(source, walk) if size is None else regroup_exactly(walk, size)
        sampler.finish()

    def chosen(self, source: PerSampleGradients, count: int) -> Iterator[Batch]:
        check_rewindable(self.batches)
        yield from self._fitting(source, self._new_sampler(labels=False).choose_for_all(self.batches, count))

    def _fitting(self, source: PerSampleGradients, walk: Iterator[Batch]) -> Iterator[Batch]:
        """The samples of a walk, as many at a time as the memory allows."""
        first = next(walk, None)
        if first is not None:
            held = source.bytes_per_sample(first, None)
            size = chunk_size(held, parameter_like(source, None).device, self.memory_limit)
            yield from regroup(chain([first], walk), size)

    def _new_sampler(self, *, labels: bool) -> ShardedSampler:
        return ShardedSampler(self.random, self.communicator, labels=labels)

    def checked(self, tree: T, what: str) -> T:
        if broken := name_nonfinite(tree):
            raise NotFinite(f"Expected {what}, got NaN or infinity in {broken}. Has the training diverged?")
        return tree

    def total(self, count: int) -> int:
        return self.communicator.total(count)

    def sum(self, x: Tensor) -> Tensor:
        return self.communicator.sum(x)

    def sum_named(self, named: Mapping[Key, Tensor]) -> dict[Key, Tensor]:
        return self.communicator.sum_named(named)

    def gather(self, x: Tensor) -> tuple[list[Tensor], int]:
        return self.communicator.gather(x), self.communicator.rank

    def gather_all(self, tree: T) -> list[T]:
        return self.communicator.gather(tree)

    def broadcast(self, tree: T) -> T:
        return tree if self.communicator.count == 1 else map_tree(self.communicator.broadcast, tree)


def name_nonfinite(tree: Any, names: tuple[str, ...] = ()) -> list[str]:
    """Name the parameters for which a tree holds a NaN or an infinity: by the keys of its dictionaries and Vectors."""
    if isinstance(tree, Tensor):
        return [] if bool(tree.isfinite().all()) else list(names)
    if isinstance(tree, Vector):
        return tree.name_nonfinite()
    if isinstance(tree, Mapping):
        parts: Iterable[tuple[Any, Any]] = (
            (key if isinstance(key, tuple) else names, own) for key, own in tree.items()
        )
    elif isinstance(tree, (list, tuple)):
        parts = ((names, own) for own in tree)
    elif is_dataclass(tree):
        parts = ((names, getattr(tree, field.name)) for field in fields(tree))
    else:
        return []
    return list(dict.fromkeys(name for inside, own in parts for name in name_nonfinite(own, inside)))


def check_rewindable(batches: Iterable[Batch]) -> None:
    """Raise for what cannot be walked, and for an iterator, which can be walked only once."""
    if isinstance(batches, Iterator | str | bytes) or not (
        hasattr(batches, "__iter__") or hasattr(batches, "__getitem__")
    ):
        raise TypeError(
            f"Expected batches that can be walked more than once (a DataLoader, a list), got a {type(batches).__name__}. "
            "Pass the loader itself, or list(...) of it."
        )


def held_at_most(device: torch.device, lanes: int = 1) -> int:
    """Bytes that an estimate holds at a time, unless it is told otherwise.

    Args:
        device: where.
        lanes: pieces of work that have the device at the same time; each leaves most of its part for what it keeps.
    """
    if device.type != "cuda":
        return MEMORY_LIMIT
    return max(MEMORY_LIMIT, torch.cuda.get_device_properties(device).total_memory // max(64, 16 * lanes))


def chunk_size(bytes_a_sample: int, device: torch.device, memory_limit: int | None = None) -> int:
    """How many samples to work on at a time.

    >>> chunk_size(2**20, torch.device("cpu")), chunk_size(2**20, torch.device("cpu"), memory_limit=10)
    (256, 1)

    Args:
        bytes_a_sample: what one holds, of all replicas.
        device: where.
        memory_limit: bytes to hold at a time; None for `held_at_most`.
    """
    limit = held_at_most(device) if memory_limit is None else memory_limit
    fitting = max(1, limit // bytes_a_sample)
    return fitting if device.type == "cuda" else min(_LARGEST_CHUNK, fitting)


def parameter_like(source: PerSampleGradients, parameters: Vector | None) -> Tensor:
    """A parameter of the model, or one of those given instead, for device and precision."""
    if parameters is not None:
        return parameters.like
    return next(p for p in source.model.parameters() if p.requires_grad)
