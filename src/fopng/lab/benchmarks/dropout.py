"""Dropout whose mask is a function of a key and a place: the same on every device, for one run and for many side by side."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from fopng.core.kernels import kernel, usable
from fopng.core.keyed_random import BITS, scrambled

_key: ContextVar[Tensor | None] = ContextVar("dropout_key", default=None)


@contextmanager
def dropout_key(key: Tensor | None) -> Iterator[None]:
    """Let every `Dropout` inside take its mask from this key, an int64 number; None for torch's own generator."""
    before = _key.set(key)
    try:
        yield
    finally:
        _key.reset(before)


@final
class DropoutKeys:
    """The keys of the steps of several runs: `keys(step)` is int64 `[R]`, made on the device, without waiting for it.

    Args:
        seeds: one a run.
        device: where the keys are wanted.

    >>> keys = DropoutKeys([3, 4], torch.device("cpu"))
    >>> keys(torch.tensor(0)).shape, bool((keys(torch.tensor(0)) == keys(torch.tensor(1))).any())
    (torch.Size([2]), False)
    """

    def __init__(self, seeds: Sequence[int], device: torch.device) -> None:
        halves = torch.tensor([[seed & BITS, seed >> 32 & BITS] for seed in seeds], dtype=torch.int64)
        self._start = scrambled(scrambled(halves[:, 0]) ^ halves[:, 1]).to(device)

    def __call__(self, step: Tensor) -> Tensor:
        return scrambled(self._start ^ scrambled(step))


@final
class Dropout(nn.Module):
    """Sets a share of the features to zero while the model is trained, and scales the others up.

    Under `dropout_key` the mask is a function of the key, of this module's place and of the position: it can be mapped over
    replicas with `torch.func.vmap`, captured in a CUDA graph, and is the same on every device. Without a key it is torch's
    own dropout.

    Args:
        share: how much is dropped, in [0, 1).
        place: a number that tells this module from the model's other ones.
    """

    def __init__(self, share: float, place: int) -> None:
        super().__init__()
        if not 0 <= share < 1:
            raise ValueError(f"Expected a dropout in [0, 1), got {share}.")
        self.share, self.place = share, place

    def forward(self, x: Tensor) -> Tensor:
        """Features `[n, ...]`, some of them zero."""
        key = _key.get()
        if not self.training or self.share == 0:
            return x
        if key is None:
            return dropout(x, self.share, training=True)
        if usable(x):
            return _Fused.apply(x, key, self.share, self.place)  # type: ignore[no-any-return, no-untyped-call]
        position = torch.arange(x.numel(), device=x.device).reshape(x.shape)
        kept = scrambled(position ^ scrambled(key + self.place)) >= int(self.share * 2**32)
        return torch.where(kept, x / (1 - self.share), 0.0)

    def extra_repr(self) -> str:
        """The share and the place."""
        return f"{self.share}, place={self.place}"


@final
class _Fused(torch.autograd.Function):
    """The same in one kernel, of one run or, under `vmap`, of all."""

    @staticmethod
    def forward(x: Tensor, key: Tensor, share: float, place: int) -> Tensor:
        dropped: Callable[..., Tensor] = kernel("dropout.dropped")
        return dropped(x.unsqueeze(0), key.unsqueeze(0), share, place).squeeze(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(inputs[1])
        ctx.numbers = inputs[2:]

    @staticmethod
    def backward(ctx: Any, back: Tensor) -> tuple[Tensor, None, None, None]:
        return _Fused.apply(back, *ctx.saved_tensors, *ctx.numbers), None, None, None  # type: ignore[no-untyped-call]

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], x: Tensor, key: Tensor, share: float, place: int
    ) -> tuple[Tensor, int]:
        """All replicas at once."""
        stacked = x.movedim(in_dims[0], 0) if in_dims[0] is not None else x.expand(info.batch_size, *x.shape)
        keys = key if in_dims[1] is not None else key.expand(info.batch_size)
        return _Stacked.apply(stacked, keys.contiguous(), share, place), 0  # type: ignore[no-untyped-call]


@final
class _Stacked(torch.autograd.Function):
    """`x [R, ...]`, `keys [R]`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, keys: Tensor, share: float, place: int) -> Tensor:
        dropped: Callable[..., Tensor] = kernel("dropout.dropped")
        ctx.save_for_backward(keys)
        ctx.numbers = share, place
        return dropped(x, keys, share, place)

    @staticmethod
    def backward(ctx: Any, back: Tensor) -> tuple[Tensor, None, None, None]:
        dropped: Callable[..., Tensor] = kernel("dropout.dropped")
        return dropped(back, *ctx.saved_tensors, *ctx.numbers), None, None, None


def further_key(key: Tensor) -> Tensor:
    """The key of another pass through the model in the same step: what it drops has nothing to do with the first."""
    return scrambled(key + 0x9E3779B9)


def draws_by_key(model: nn.Module) -> bool:
    """Whether a model has a `Dropout` of this kind at work."""
    return any(isinstance(module, Dropout) and module.share > 0 for module in model.modules())
