"""Which device runs use, and how many threads of the CPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def find_device(name: str) -> torch.device:
    """The device called `auto`, `cpu`, `cuda` or `mps`; an error where the machine has none."""
    present = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return torch.device("cuda" if present["cuda"] else "cpu")
    if not present.get(name, False):
        usable = ", ".join(device for device, there in present.items() if there)
        raise ValueError(f"Expected a device that this machine has ({usable}), got {name}.")
    return torch.device(name)


@contextmanager
def threads_used(asked: int | None, model: str) -> Iterator[None]:
    """Use this many threads of the CPU inside; None for what suits the model."""
    before = torch.get_num_threads()
    torch.set_num_threads(asked or threads_for(model))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def threads_for(model: str) -> int:
    """One for an MLP, whose steps are too small to share; else OMP_NUM_THREADS or all cores."""
    told = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return 1 if model == "mlp" else int(told) if told.isdecimal() and int(told) else cores()


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
