"""Sums, copies and lists over the processes that share a run; with one process they cost nothing."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar, final

import torch
import torch.distributed as dist
from torch import Tensor, nn

from fopng.core.batch import map_tensors, tensors_of

Key = TypeVar("Key")


class NotShared(UserWarning):
    """There are several processes, and an optimizer that was not told of them."""


class Communicator(ABC):
    """The processes that share a run. Each must make the same calls in the same order.

    Attributes:
        rank: the number of this process, from 0.
        count: how many there are, W.
    """

    rank: int
    count: int

    @abstractmethod
    def sum(self, x: Tensor) -> Tensor:
        """Add tensors of one shape, entry by entry, to the same bits everywhere; the given one may be overwritten."""

    @abstractmethod
    def sum_named(self, named: Mapping[Key, Tensor]) -> dict[Key, Tensor]:
        """Add tensors by their names; one that a process does not have is zero there."""

    @abstractmethod
    def gather(self, value: Any) -> list[Any]:
        """List what each process gives: numbers, texts and tensors in tuples, lists and dictionaries."""

    @abstractmethod
    def broadcast(self, x: Tensor, source: int = 0) -> Tensor:
        """Copy the tensor of one process; the others give one of the same shape."""

    @final
    def agree(self, generator: torch.Generator, source: int) -> None:
        """Set each process's generator to the state that it has in one of them."""
        if self.count > 1:
            generator.set_state(self.broadcast(generator.get_state(), source))

    @final
    def total(self, count: int) -> int:
        """Add whole numbers."""
        return count if self.count == 1 else int(self.sum(torch.tensor(count)))

    @final
    def everywhere(self, holds: bool) -> bool:
        """Whether something holds in all processes."""
        return self.total(int(holds)) == self.count

    @final
    def share(self, count: int) -> range:
        """Numbers up to `count` that are this process's when they are dealt out in turn."""
        return range(self.rank, count, self.count)


@final
class SingleProcess(Communicator):
    """One process alone.

    >>> SingleProcess().total(3), list(SingleProcess().share(2))
    (3, [0, 1])
    """

    rank, count = 0, 1

    def sum(self, x: Tensor) -> Tensor:
        return x

    def sum_named(self, named: Mapping[Key, Tensor]) -> dict[Key, Tensor]:
        return dict(named)

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def broadcast(self, x: Tensor, source: int = 0) -> Tensor:
        return x


SINGLE_PROCESS = SingleProcess()
"""The usual case."""


@final
class TorchCommunicator(Communicator):
    """The processes of a `torch.distributed` group.

    Args:
        group: the group; None for all processes.
        device: where this process computes, and where NCCL wants its tensors.
    """

    def __init__(self, group: dist.ProcessGroup | None, device: torch.device) -> None:
        self._group, self._device = group, device
        self.rank, self.count = dist.get_rank(group), dist.get_world_size(group)
        # gloo takes tensors wherever they are, NCCL only those on its device
        self._any_device = dist.get_backend(group) != "nccl"

    def _near(self, x: Tensor) -> Tensor:
        return x.contiguous() if self._any_device else x.to(self._device).contiguous()

    def sum(self, x: Tensor) -> Tensor:
        near = self._near(x)
        dist.all_reduce(near, group=self._group)
        return near.to(x.device)

    def sum_named(self, named: Mapping[Key, Tensor]) -> dict[Key, Tensor]:
        own = {key: (tuple(tensor.shape), tensor.dtype) for key, tensor in named.items()}
        known = {key: form for each in self.gather(list(own.items())) for key, form in each}
        if not known:
            return {}
        pieces = [
            named[key].reshape(-1) if key in named else torch.zeros(shape, dtype=dtype, device=self._device).reshape(-1)
            for key, (shape, dtype) in known.items()
        ]
        whole = self.sum(torch.cat(pieces)).split([len(piece) for piece in pieces])
        return {key: part.view(shape) for (key, (shape, _)), part in zip(known.items(), whole, strict=True)}

    def gather(self, value: Any) -> list[Any]:
        away = [tensor.device.type != "cpu" for tensor in tensors_of(value)]
        found: list[Any] = [None] * self.count
        # a copy: of a view, all that it is a view of would travel
        sent = map_tensors(lambda tensor: tensor.detach().cpu().clone(), value)
        dist.all_gather_object(found, (sent, away), group=self._group)
        return [self._returned(*each) for each in found]

    def _returned(self, value: Any, away: list[bool]) -> Any:
        """Move what was not on a CPU to this process's device."""
        places = iter(away)
        return map_tensors(lambda tensor: tensor.to(self._device) if next(places) else tensor, value)

    def broadcast(self, x: Tensor, source: int = 0) -> Tensor:
        near = self._near(x)
        near = near.clone() if near is x else near
        dist.broadcast(near, group=self._group, group_src=source)
        return near.to(x.device)


def communicator_of(model: nn.Module) -> tuple[nn.Module, Communicator]:
    """The module inside a `DistributedDataParallel` and its processes; any other model itself, in a single process.

    Of a model that `torch.compile` wraps it is the model inside, so that its parameters keep their names.
    """
    model = uncompiled(model)
    if not isinstance(model, nn.parallel.DistributedDataParallel):
        return model, SINGLE_PROCESS
    return uncompiled(model.module), group_communicator(model.process_group, next(model.parameters()).device)


def uncompiled(model: nn.Module) -> nn.Module:
    """The model inside what `torch.compile` returns; any other model itself."""
    inside = model._modules.get("_orig_mod")
    return model if inside is None else inside


def group_communicator(group: dist.ProcessGroup | None, device: torch.device) -> Communicator:
    """The processes of a `torch.distributed` group, None for all; a group of one is a single process."""
    return TorchCommunicator(group, device) if dist.get_world_size(group) > 1 else SINGLE_PROCESS


def warn_if_not_shared(communicator: Communicator, stacklevel: int) -> None:
    """Warn where there are several processes and an optimizer acts as if there were one: their parameters would drift apart."""
    if communicator.count == 1 and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        warnings.warn(
            f"There are {dist.get_world_size()} processes, and this optimizer knows of one: each would remember its own shard, "
            "and the models would drift apart. Pass it the DistributedDataParallel model, or call its share().",
            NotShared,
            stacklevel=stacklevel + 1,
        )
