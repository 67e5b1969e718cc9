"""What a run costs: seconds by phase, and the most memory held at a time."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import final

import torch

_PROCESS = Path("/proc/self")


@final
class Stopwatch:
    """Seconds by phase, added to those of an earlier process.

    Args:
        wait: waits for the device.
        seconds: those of the earlier process.
    """

    def __init__(self, wait: Callable[[], None], seconds: dict[str, float]) -> None:
        self._wait = wait
        self.seconds = seconds

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time inside for a phase, the device's own work included."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self._wait()
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started


def wait_for(device: torch.device) -> None:
    """Wait until a device has done its work."""
    if device.type != "cpu":
        torch.get_device_module(device).synchronize()


def forget_peak_memory(device: torch.device) -> None:
    """Forget the peak so far, where the system can."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with contextlib.suppress(OSError):
            (_PROCESS / "clear_refs").write_text("5")


def peak_memory(device: torch.device) -> int | None:
    """The most bytes held: by the tensors on a CUDA device, elsewhere by the whole process; None where that is unknown."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with contextlib.suppress(OSError, IndexError, ValueError):
        status = (_PROCESS / "status").read_text()
        return 1024 * int(status.split("VmHWM:")[1].split()[0])
    if sys.platform == "win32":
        return None
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else 1024 * used
