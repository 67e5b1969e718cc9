"""The global random states: saved, seeded and restored. A run depends on its own seed, and changes nothing outside."""

import contextlib
import random
from collections.abc import Iterator

import numpy as np
import torch

from fopng.lab.storage.state import State


def random_states(device: torch.device) -> State:
    """The states of torch, numpy and Python's own generator, as plain data for a checkpoint."""
    return {
        "torch": torch.get_rng_state(),
        "device": None if device.type == "cpu" else torch.get_device_module(device).get_rng_state(),
        "numpy": np.random.get_state(),  # noqa: NPY002  # the global state is the point
        "python": random.getstate(),
    }


def set_random_states(states: State, device: torch.device) -> None:
    """Put back what `random_states` gave."""
    torch.set_rng_state(states["torch"])
    if states["device"] is not None and device.type != "cpu":
        torch.get_device_module(device).set_rng_state(states["device"])
    np.random.set_state(states["numpy"])  # noqa: NPY002
    random.setstate(states["python"])


@contextlib.contextmanager
def random_states_kept(device: torch.device) -> Iterator[None]:
    """Leave the global random states as they were, whatever is drawn inside."""
    kept = random_states(device)
    try:
        yield
    finally:
        set_random_states(kept, device)


@contextlib.contextmanager
def drawn_from(seed: int, device: torch.device) -> Iterator[None]:
    """Draw everything inside from a seed, and put the global states back afterwards."""
    with random_states_kept(device):
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        random.seed(seed)
        yield
