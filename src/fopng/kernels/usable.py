"""Whether the kernels can be used here."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

_forced: bool | None = None


def usable(*tensors: Tensor) -> bool:
    """Whether these tensors can be given to a kernel: float32 on CUDA, Triton there, no autocast at work."""
    if _forced is not None:
        return _forced
    return (
        all(t.is_cuda and t.dtype == torch.float32 for t in tensors)
        and _installed()
        and not torch.is_autocast_enabled("cuda")
    )


@contextmanager
def forced(use: bool) -> Iterator[None]:
    """Use the kernels, or the plain way, whatever would be chosen: for tests and benchmarks."""
    global _forced
    before, _forced = _forced, use
    try:
        yield
    finally:
        _forced = before


def product_precision() -> str:
    """How a kernel multiplies: as exactly as float32, unless the user allowed TF32."""
    return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "tf32x3"


@cache
def _installed() -> bool:
    return find_spec("triton") is not None and os.environ.get("FOPNG_KERNELS", "1") != "0"
