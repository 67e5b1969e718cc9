"""Batches: any tree of tensors with the samples on the first axis; counted, cut, joined."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

Batch: TypeAlias = Any
"""A tensor, or tuples, lists and mappings of tensors; a tensor's first axis is the sample."""

Predict: TypeAlias = Callable[[torch.nn.Module, Batch], tuple[Tensor, Tensor | None]]
"""How a model answers a batch: `predict(model, batch) -> (outputs, targets)`, a row of each a sample."""


TaskName: TypeAlias = int | str | None
"""What a batch calls its task; None where batches do not say."""


class PredictTask(ABC):
    """A `Predict` that knows which task a batch is of, for models with a head a task.

    Methods that rehearse old tasks keep them apart by it, and `LwF` asks old heads about new samples with it.
    """

    @abstractmethod
    def __call__(self, model: torch.nn.Module, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Answer a batch with the head of its task."""

    @abstractmethod
    def task_of(self, batch: Batch) -> TaskName:
        """Say which task a batch is of: a number or a name."""

    @abstractmethod
    def as_task(self, batch: Batch, task: TaskName) -> Batch:
        """Return the batch as if it were of another task."""


class NotFinite(ValueError, FloatingPointError):
    """Numbers that ought to be finite are not: the training has diverged, or the data hold a NaN."""


def predict_pairs(model: torch.nn.Module, batch: Batch) -> tuple[Tensor, Tensor | None]:
    """Call `model(x)` on a batch `(x, y)`: the default way a model answers."""
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        found = f"a {type(batch).__name__}" + (f" of {len(batch)}" if hasattr(batch, "__len__") else "")
        raise TypeError(
            f"Expected batches (inputs, targets), got {found}. Pass predict=, a function of (model, batch)."
        )
    inputs, targets = batch
    return model(inputs), targets


def map_tensors(function: Callable[[Tensor], Tensor], batch: Batch) -> Batch:
    """Apply `function` to every tensor of a batch, keeping its structure.

    >>> map_tensors(lambda t: t + 1, {"x": torch.zeros(2), "name": "a"})
    {'x': tensor([1., 1.]), 'name': 'a'}
    """
    if isinstance(batch, Tensor):
        return function(batch)
    if isinstance(batch, Mapping):
        mapped = {key: map_tensors(function, value) for key, value in batch.items()}
        return replace(batch, **mapped) if is_dataclass(batch) and not isinstance(batch, type) else mapped
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(function, value) for value in batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)(map_tensors(function, value) for value in batch)
    return batch


def tensors_of(batch: Batch) -> list[Tensor]:
    """List every tensor of a batch, in order."""
    return list(_walk(batch))


def _walk(batch: Batch) -> Iterator[Tensor]:
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, (Mapping, tuple, list)):
        for value in batch.values() if isinstance(batch, Mapping) else batch:
            yield from _walk(value)


def sample_count(batch: Batch, axis: int = 0) -> int:
    """Count the samples of a batch: the size of its first tensor along `axis`.

    >>> sample_count((torch.zeros(3, 2), torch.zeros(3)))
    3
    """
    for tensor in _walk(batch):
        if tensor.dim() > axis:
            return tensor.shape[axis]
    raise TypeError(f"Expected a batch with a tensor whose axis {axis} is the sample, got {type(batch).__name__}.")


def take(batch: Batch, index: Tensor, axis: int = 0) -> Batch:
    """Pick samples of a batch; a tensor that is not per sample stays whole.

    >>> take((torch.arange(4), "tag"), torch.tensor([2, 0]))
    (tensor([2, 0]), 'tag')
    """
    n = sample_count(batch, axis)
    return map_tensors(
        lambda t: t.index_select(axis, index.to(t.device)) if t.dim() > axis and t.shape[axis] == n else t, batch
    )


def regroup(batches: Iterable[Batch], size: int, axis: int = 0) -> Iterator[Batch]:
    """Yield the same samples in batches of about `size`: small ones joined, large ones cut.

    Batches that cannot be joined (sequences of another length, the number of another task beside them) stay apart.

    >>> [len(b) for b in regroup([torch.zeros(2), torch.zeros(2), torch.zeros(9)], 4)]
    [4, 4, 4, 1]
    """
    waiting: list[Batch] = []
    held, form = 0, None
    for batch in batches:
        n = sample_count(batch, axis)
        if waiting and (held + n > size or form != form_of(batch, axis, n)):
            yield join(waiting, axis)
            waiting, held = [], 0
        if n > size:
            yield from (take(batch, part, axis) for part in torch.arange(n).split(size))
        elif n > 0:
            form = form if waiting else form_of(batch, axis, n)
            waiting.append(batch)
            held += n
    if waiting:
        yield join(waiting, axis)


def regroup_exactly(batches: Iterable[Batch], size: int) -> Iterator[Batch]:
    """Yield the same samples `size` at a time, however they came; what cannot be joined stays apart, as in `regroup`.

    >>> [len(b) for b in regroup_exactly([torch.zeros(3), torch.zeros(2), torch.zeros(6)], 4)]
    [4, 4, 3]
    """
    left: list[Batch] = []
    for batch in (batch for batch in batches if sample_count(batch)):
        *apart, last = regroup([*left, batch], sum(map(sample_count, [*left, batch]))) if left else [batch]
        yield from apart
        n = sample_count(last)
        *whole, rest = torch.arange(n).split(size) if n % size else [*torch.arange(n).split(size), torch.arange(0)]
        yield from (take(last, part) for part in whole)
        left = [take(last, rest)] if len(rest) else []
    yield from left


def join(batches: Sequence[Batch], axis: int = 0) -> Batch:
    """One batch of the samples of several that have the same form."""
    if len(batches) == 1:
        return batches[0]
    joined = iter([torch.cat(column, axis) for column in zip(*map(tensors_of, batches), strict=True)])
    return map_tensors(lambda _: next(joined), batches[0])


def form_of(batch: Batch, axis: int, n: int) -> Any:
    """What two batches of samples must share to be joined, nesting included; what cannot be joined is like nothing else."""
    if isinstance(batch, Tensor):
        per_sample = batch.dim() > axis and batch.shape[axis] == n
        return (batch.dtype, batch.device, batch.shape[:axis], batch.shape[axis + 1 :]) if per_sample else object()
    if isinstance(batch, Mapping):
        return {key: form_of(value, axis, n) for key, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        # a list without tensors may well be one entry for each sample, which nobody could tell
        return [form_of(value, axis, n) for value in batch] if tensors_of(batch) or not batch else object()
    return batch if isinstance(batch, (type(None), bool, int, float, str)) else object()
