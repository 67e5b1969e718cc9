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


SHARED_BY_STACKED_MLPS = 4
"""Threads that share the steps of several MLPs side by side, at the most: two were measured to be faster than one."""


@contextmanager
def threads_used(asked: int | None, model: str, *, together: bool = False) -> Iterator[None]:
    """Use so many threads of the CPU inside: what was asked for, or what suits the size of the steps.

    Args:
        asked: how many; None to choose.
        model: the name of the model.
        together: whether runs stand side by side.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(asked or threads_for(model, together=together))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def threads_for(model: str, *, together: bool) -> int:
    """The steps of one MLP are too small to share between threads."""
    if model != "mlp":
        return cores()
    return min(cores(), SHARED_BY_STACKED_MLPS) if together else 1


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
