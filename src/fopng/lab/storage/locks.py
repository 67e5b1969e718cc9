"""One process at a time for a run: a lock that dies with the process that holds it."""

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from fopng.lab.storage.atomic import is_alive
from fopng.lab.storage.parsing import parse_json

POLL_SECONDS = 0.05


class HeldError(RuntimeError):
    """Another process is doing this work."""


@contextlib.contextmanager
def hold(path: Path) -> Iterator[None]:
    """Hold the lock file `path` while the context lasts; `HeldError` says who has it when somebody does."""
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout as error:
        raise _held(path) from error
    try:
        with contextlib.suppress(OSError):  # on a full disk the lock holds all the same, unsigned
            path.write_text(json.dumps({"process": os.getpid(), "host": socket.gethostname()}))
        yield
    finally:
        if lock.is_locked:  # not in a forked child, which has no part in the lock
            with contextlib.suppress(OSError):  # Windows removes no open file
                # Removed before it is let go: a process that has the old file open notices and opens the new one.
                path.unlink(missing_ok=True)
            lock.release()


def is_held(path: Path) -> bool:
    """Whether somebody has the lock file `path`, without touching it. A process of this machine that is gone does not count."""
    if not path.exists():
        return False
    holder = _holder(path)
    return holder is None or holder[1] != socket.gethostname() or is_alive(holder[0])


@contextlib.contextmanager
def hold_when_free(path: Path, *, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock file `path` while the context lasts, after waiting for whoever has it.

    Args:
        path: the lock file.
        waiting: called once, when there is somebody to wait for.
    """
    with contextlib.ExitStack() as held:
        while True:
            try:
                held.enter_context(hold(path))
                break
            except HeldError:
                if waiting is not None:
                    waiting()
                waiting = None
                time.sleep(POLL_SECONDS)
        yield


def _holder(path: Path) -> tuple[int, str] | None:
    """The process and host in a lock file; None when it says nothing legible, as in the moment of its creation."""
    try:
        members = parse_json(path.read_bytes())
        return int(members["process"]), str(members["host"])
    except (OSError, ValueError, TypeError, KeyError, OverflowError):
        return None


def _held(path: Path) -> HeldError:
    holder = _holder(path)
    who = "another process" if holder is None else f"process {holder[0]} on {holder[1]}"
    return HeldError(f"Expected {path.parent} to be free, got a lock held by {who}. Let it finish or stop it.")
