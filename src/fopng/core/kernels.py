"""The one place where fused GPU kernels are found, and where it is decided whether they are used.

Each has a plain twin in torch that says what it does; `FOPNG_KERNELS=0` in the environment takes that everywhere.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

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


@cache
def kernel(name: str) -> Any:
    """Find a kernel by its place in `fopng.contrib.kernels`, such as "steps.move"; only where `usable` allows it."""
    module, _, function = name.rpartition(".")
    return getattr(import_module(f"fopng.contrib.kernels.{module}"), function)


def product_precision() -> str:
    """How a kernel multiplies: as exactly as float32, unless the user allowed TF32."""
    return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "tf32x3"


@cache
def _installed() -> bool:
    return find_spec("triton") is not None and os.environ.get("FOPNG_KERNELS", "1") != "0"
