"""Which device and how many threads a run gets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fopng.cli.options import Device

if TYPE_CHECKING:
    import torch


def find_device(name: Device) -> torch.device:
    """The device of this name; an error where the machine has none."""
    import torch

    there = {
        Device.CPU: True,
        Device.CUDA: torch.cuda.is_available(),
        Device.MPS: torch.backends.mps.is_available(),
    }
    if name is Device.AUTO:
        return torch.device("cuda" if there[Device.CUDA] else "cpu")
    if not there[name]:
        usable = ", ".join(device.value for device, usable in there.items() if usable)
        raise ValueError(f"Expected a device that this machine has ({usable}), got {name.value}.")
    return torch.device(name.value)


@contextmanager
def threads_used(asked: int | None, model: str) -> Iterator[None]:
    """Use so many threads of the CPU inside: what was asked for, or what suits the size of the model's steps."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(asked or threads_for(model))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def threads_for(model: str) -> int:
    """An MLP's steps are small: where another process takes a core, threads that wait for each other cost more than they gain."""
    told = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return 1 if model == "mlp" else int(told) if told.isdecimal() and int(told) else cores()


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
