"""Other processes, as the system's files show them."""

import contextlib
import time
from pathlib import Path

PATIENCE = 300
"""Seconds after which a process counts as stuck."""


def wait_until(true, seconds=PATIENCE):
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def descendants(process):
    """The processes below one, as far as they are there."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = {process}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {process}


def command_of(process):
    """What it was started with; empty when it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_text()
    return ""


def state_of(process):
    """The letter that the system writes for it; a zombie's for one that is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    return "Z"


def is_running(process):
    """Whether it has not ended."""
    return state_of(process) != "Z"
