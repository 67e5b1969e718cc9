"""Samples that a task trains or is tested on, and the batches they come in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sized
from functools import cached_property
from itertools import islice
from typing import Any, TypeAlias, final
from weakref import WeakValueDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from fopng.lab.data.pixels import PixelMap, Scaling

Device: TypeAlias = torch.device | str | None
Batch: TypeAlias = tuple[Tensor, Tensor]

# Batches are cut from chunks of about this many float32 numbers: large enough that a batch costs a slice, small enough
# that the chunk stays in the processor's cache.
CHUNK_NUMBERS = 1 << 19


class Split(ABC):
    """Samples in a fixed order: inputs x [n, ...], float32 or int64, and targets y [n], int64, made when they are asked for."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input."""

    @property
    @abstractmethod
    def targets(self) -> Tensor:
        """All targets, int64 [n]."""

    @abstractmethod
    def read(self, rows: Tensor, device: Device = None) -> Batch:
        """(x, y) of these rows, int64 [b], on a device."""

    @final
    def tensors(self, device: Device = None) -> Batch:
        """(x, y) of every sample, on a device."""
        return self.read(torch.arange(len(self)), device)

    def same_samples(self, other: Split) -> bool:
        """Whether another split is known to hold the same samples in the same order, without reading them."""
        return self is other

    @final
    def order(self, generator: torch.Generator | None) -> Tensor:
        """The rows of one epoch, int64 [n]: drawn from the generator, or as they are without one."""
        if generator is None:
            return torch.arange(len(self))
        return torch.randperm(len(self), generator=generator, device=generator.device).cpu()

    @final
    def batches(self, size: int, *, generator: torch.Generator | None = None, device: Device = None) -> Batches:
        """Batches of (x, y): shuffled by a generator, or in order without one."""
        return Batches(self, size, generator, device)


@final
class Batches:
    """Batches of a split. Each walk is an epoch, in an order that the generator draws anew; nothing else is random."""

    def __init__(self, split: Split, size: int, generator: torch.Generator | None, device: Device) -> None:
        if size < 1:
            raise ValueError(f"Expected a batch size of 1 or more, got {size}.")
        self.split = split
        self.size = size
        self.generator = generator
        self.device = device

    def __len__(self) -> int:
        return -(-len(self.split) // self.size)

    def __iter__(self) -> Iterator[Batch]:
        return self.walk(0)

    def walk(self, start: int) -> Iterator[Batch]:
        """An epoch from one of its batches on; what comes before it is not read."""
        per_chunk = CHUNK_NUMBERS // max(1, int(np.prod(self.split.input_shape)))
        batches_per_chunk = max(1, per_chunk // self.size)
        # Whole chunks are left out: a batch lies in memory where it lies in a whole epoch, which may decide its last bit.
        skipped, rest = divmod(start, batches_per_chunk)
        for rows in torch.split(self.split.order(self.generator), batches_per_chunk * self.size)[skipped:]:
            x, y = self.split.read(rows, self.device)
            batches = zip(torch.split(x, self.size), torch.split(y, self.size), strict=True)
            yield from islice(batches, rest, None)
            rest = 0


KEPT_BYTES = 2**28
"""Larger arrays are read from the CPU, batch by batch, and so are those that somebody may still write to."""

_KEPT: WeakValueDictionary[tuple[object, ...], Tensor] = WeakValueDictionary()
"""Images on a GPU, as long as a split uses them."""


@final
class ArraySplit(Split):
    """Samples out of an array that may be shared and memory-mapped; only the rows of a batch are ever converted.

    Args:
        images: raw inputs of all samples, [N, ...].
        targets: the target of each row, [n].
        rows: which of the N inputs belong here, [n]; all of them when None.
        pixels: how the pixels of [n, channels, height, width] images are moved.
        scaling: how raw values become float32; None for `as_numbers`.
    """

    def __init__(
        self,
        images: NDArray[Any],
        targets: NDArray[np.integer],
        *,
        rows: NDArray[np.int64] | None = None,
        pixels: PixelMap | None = None,
        scaling: Scaling | None = None,
    ) -> None:
        samples = len(images) if rows is None else len(rows)
        if len(targets) != samples:
            raise ValueError(f"Expected a target for each of {samples} samples, got {len(targets)}.")
        self._images = images
        self._targets = torch.from_numpy(np.array(targets, dtype=np.int64))
        self._rows = rows
        self._pixels = pixels
        self._scaling = scaling
        self._kept: Tensor | None = None

    def __len__(self) -> int:
        return len(self._targets)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return self._images.shape[1:]

    @property
    def targets(self) -> Tensor:
        """All targets, int64 [n]."""
        return self._targets

    def same_samples(self, other: Split) -> bool:
        """Whether another split takes the same rows of the same array and does the same to them."""
        return self is other or (
            isinstance(other, ArraySplit)
            and self._images is other._images
            and np.array_equal(_or_none(self._rows), _or_none(other._rows))
            and torch.equal(self._targets, other._targets)
            and self._pixels == other._pixels
            and self._scaling == other._scaling
        )

    def first(self, count: int) -> ArraySplit:
        """The same with its first samples alone, or all of them where there are fewer."""
        rows = np.arange(len(self)) if self._rows is None else self._rows
        return ArraySplit(
            self._images,
            self._targets[:count].numpy(),
            rows=rows[:count],
            pixels=self._pixels,
            scaling=self._scaling,
        )

    def read(self, rows: Tensor, device: Device = None) -> Batch:
        """(x, y) of these rows, int64 [b], on a device; raw bytes are moved there before they grow to floats."""
        rows = rows.cpu()
        taken = rows.numpy() if self._rows is None else self._rows[rows.numpy()]
        there = torch.device(device or "cpu")
        keep = there.type == "cuda" and self._images.nbytes <= KEPT_BYTES and not self._images.flags.writeable
        x = self._taken_there(taken, there) if keep else self._taken_here(taken).to(device)
        x = as_numbers(x) if self._scaling is None else self._scaling(x)
        return x, self._targets[rows].to(device)

    def _taken_here(self, rows: NDArray[np.int64]) -> Tensor:
        raw = self._images.take(rows, axis=0)
        return torch.from_numpy(raw if self._pixels is None else self._pixels(raw))

    def _taken_there(self, rows: NDArray[np.int64], device: torch.device) -> Tensor:
        """The same with all images on the device, once for all splits of them that are in use."""
        if device.type == "cuda":
            device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        if self._kept is None or self._kept.device != device:
            where = (id(self._images), str(device))
            kept = _KEPT.get(where)
            self._kept = _KEPT[where] = torch.from_numpy(np.array(self._images)).to(device) if kept is None else kept
        if device.type == "cuda":
            # made on one stream, read on another: its memory is not given away before that is done
            self._kept.record_stream(torch.cuda.current_stream(device))
        raw = self._kept.index_select(0, torch.from_numpy(rows).to(device))
        return raw if self._pixels is None else self._pixels.on_device(raw)

    def __getstate__(self) -> dict[str, Any]:
        """Without the images on a device: a copy finds them there, or puts them there."""
        return {**self.__dict__, "_kept": None}


def _or_none(rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
    return np.array([-1]) if rows is None else rows


def as_numbers(x: Tensor) -> Tensor:
    """Whole numbers, such as tokens, as int64; bytes and all others as float32."""
    kept = x.is_floating_point() or x.dtype in (torch.uint8, torch.bool)
    return x.to(torch.float32 if kept else torch.int64)


@final
class DatasetSplit(Split):
    """The samples of any `torch.utils.data.Dataset` that has a length and gives (input, target) pairs."""

    def __init__(self, dataset: Dataset[Any]) -> None:
        if not isinstance(dataset, Sized) or len(dataset) == 0:
            raise ValueError(f"Expected a dataset with a length and at least one sample, got {type(dataset).__name__}.")
        self._dataset = dataset
        self._length = len(dataset)

    def __len__(self) -> int:
        return self._length

    @cached_property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input, from the first sample."""
        return tuple(self._sample(0)[0].shape)

    @cached_property
    def targets(self) -> Tensor:
        """All targets, int64 [n]; the first use reads every sample once."""
        return torch.stack([self._sample(row)[1] for row in range(len(self))])

    def read(self, rows: Tensor, device: Device = None) -> Batch:
        """(x, y) of these rows, int64 [b], on a device; each sample is asked of the dataset anew."""
        inputs, targets = zip(*(self._sample(row) for row in rows.tolist()), strict=True)
        return torch.stack(inputs).to(device), torch.stack(targets).to(device)

    def _sample(self, row: int) -> Batch:
        item = self._dataset[row]
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise TypeError(f"Expected (input, target) from the dataset, got {type(item).__name__} for sample {row}.")
        try:
            return as_numbers(torch.as_tensor(item[0])), torch.as_tensor(item[1], dtype=torch.int64)
        except (TypeError, ValueError, RuntimeError) as error:
            kind = type(item[0]).__name__
            raise TypeError(
                f"Expected an input that becomes a tensor, got {kind}. Give the dataset a transform."
            ) from error
