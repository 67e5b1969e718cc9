"""The processes that share one run: what each has found is added up, gathered, agreed on. One process alone pays nothing."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, final

import torch
import torch.distributed as dist
from torch import Tensor, nn

from fopng.core.batch import map_tensors, tensors_of

Key = TypeVar("Key")


class NotShared(UserWarning):
    """There are several processes, and an optimizer that knows nothing of them."""


class Peers(ABC):
    """The processes of a run. Every one of them must make the same calls, in the same order.

    Attributes:
        number: which of them this one is, from 0.
        count: how many they are, W.
    """

    number: int
    count: int

    @abstractmethod
    def sum(self, x: Tensor) -> Tensor:
        """Add tensors of one shape up, entry by entry, to the same bits everywhere; the given one may be overwritten."""

    @abstractmethod
    def gather(self, value: Any) -> list[Any]:
        """What every process gives, in order: numbers, texts and tensors in tuples, lists and dictionaries."""

    @abstractmethod
    def agree(self, generator: torch.Generator, source: int) -> None:
        """Put everyone's generator into the state that it has in one of the processes."""

    @abstractmethod
    def columns(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """Everyone's rows `[m, w / W]`, process by process, in this process's share of their columns.

        Args:
            rows: those of this process, `[own, w]`.
            counts: how many each process has.
        """

    @abstractmethod
    def sum_named(self, named: Mapping[Key, Tensor]) -> dict[Key, Tensor]:
        """Add tensors up by their names; one that a process does not have is zero there."""

    @final
    def total(self, count: int) -> int:
        """Add a whole number up."""
        return count if self.count == 1 else int(self.sum(torch.tensor(count)))

    @final
    def everywhere(self, holds: bool) -> bool:
        """Whether something holds in all processes."""
        return self.total(int(holds)) == self.count

    @final
    def turns(self, count: int) -> range:
        """Which of so many things are this process's, if they are dealt out in turn."""
        return range(self.number, count, self.count)


@final
class Alone(Peers):
    """One process.

    >>> Alone().total(3), list(Alone().turns(2))
    (3, [0, 1])
    """

    number, count = 0, 1

    def sum(self, x: Tensor) -> Tensor:
        return x

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def agree(self, generator: torch.Generator, source: int) -> None:
        return

    def columns(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        return rows

    def sum_named(self, named: Mapping[Key, Tensor]) -> dict[Key, Tensor]:
        return dict(named)


ALONE = Alone()
"""The usual case."""


@final
class Together(Peers):
    """The processes of a `torch.distributed` group.

    Args:
        group: the group; None for all processes.
        device: where this process computes, and where NCCL wants its tensors.
    """

    def __init__(self, group: dist.ProcessGroup | None, device: torch.device) -> None:
        self._group = group
        self.number, self.count = dist.get_rank(group), dist.get_world_size(group)
        self._home = device
        # gloo takes tensors wherever they are, NCCL only its device's
        self._everywhere = dist.get_backend(group) != "nccl"

    def _near(self, x: Tensor) -> Tensor:
        return x.contiguous() if self._everywhere else x.to(self._home).contiguous()

    def sum(self, x: Tensor) -> Tensor:
        near = self._near(x)
        dist.all_reduce(near, group=self._group)
        return near.to(x.device)

    def gather(self, value: Any) -> list[Any]:
        away = [tensor.device.type != "cpu" for tensor in tensors_of(value)]
        found: list[Any] = [None] * self.count
        # a copy: of a view, all that it is a view of would travel
        sent = map_tensors(lambda tensor: tensor.detach().cpu().clone(), value)
        dist.all_gather_object(found, (sent, away), group=self._group)
        return [self._home_again(*each) for each in found]

    def _home_again(self, value: Any, away: list[bool]) -> Any:
        places = iter(away)
        return map_tensors(lambda tensor: tensor.to(self._home) if next(places) else tensor, value)

    def agree(self, generator: torch.Generator, source: int) -> None:
        state = self._near(generator.get_state())
        dist.broadcast(state, group=self._group, group_src=source)
        generator.set_state(state.cpu())

    def columns(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        width = -(-rows.shape[1] // self.count)
        missing = width * self.count - rows.shape[1]
        if missing:
            # the same number of columns for everyone: a column of zeros adds nothing to a product
            rows = nn.functional.pad(rows, (0, missing))
        sent = self._near(rows.unflatten(1, (self.count, width)).transpose(0, 1).reshape(-1, width))
        found = sent.new_empty(sum(counts), width)
        dist.all_to_all_single(found, sent, list(counts), [len(rows)] * self.count, group=self._group)
        return found.to(rows.device)

    def sum_named(self, named: Mapping[Key, Tensor]) -> dict[Key, Tensor]:
        own = {key: (tuple(tensor.shape), tensor.dtype) for key, tensor in named.items()}
        known = {key: form for each in self.gather(list(own.items())) for key, form in each}
        if not known:
            return {}
        pieces = [
            named[key].reshape(-1) if key in named else torch.zeros(shape, dtype=dtype, device=self._home).reshape(-1)
            for key, (shape, dtype) in known.items()
        ]
        whole = self.sum(torch.cat(pieces)).split([len(piece) for piece in pieces])
        return {key: part.view(shape) for (key, (shape, _)), part in zip(known.items(), whole, strict=True)}


def peers_of(model: nn.Module) -> tuple[nn.Module, Peers]:
    """The module inside a `DistributedDataParallel` and the processes that share it; any other model itself, alone."""
    if not isinstance(model, nn.parallel.DistributedDataParallel):
        return model, ALONE
    return model.module, group_peers(model.process_group, next(model.parameters()).device)


def group_peers(group: dist.ProcessGroup | None, device: torch.device) -> Peers:
    """The processes of a `torch.distributed` group, None for all; one alone where there are no others."""
    return Together(group, device) if dist.get_world_size(group) > 1 else ALONE


def warn_if_not_shared(peers: Peers, stacklevel: int) -> None:
    """Warn where there are several processes, and one acts as if it were alone: their parameters would drift apart."""
    if peers.count == 1 and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        warnings.warn(
            f"There are {dist.get_world_size()} processes, and this optimizer knows of one: each would remember its own shard, "
            "and the models would drift apart. Pass it the DistributedDataParallel model, or call its share().",
            NotShared,
            stacklevel=stacklevel + 1,
        )
