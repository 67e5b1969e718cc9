"""One process at a time for a run: a lock that dies with the process that holds it."""

import contextlib
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


POLL_SECONDS = 0.05


class HeldError(RuntimeError):
    """Somebody else is doing this work."""


def allow_many() -> None:
    """Let this process hold as many locks at a time as the system lets it: each is an open file."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def hold(path: Path) -> contextlib.AbstractContextManager[None]:
    """Hold the lock file `path` while the context lasts; `HeldError` says who has it when somebody does."""
    return hold_exclusive_file(path) if fcntl is None else hold_file_lock(path)


def is_held(path: Path) -> bool:
    """Whether somebody has the lock file `path`, without touching it: one that names a process that is gone does not count."""
    return path.exists() and not _names_the_dead(path)


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


@contextlib.contextmanager
def hold_file_lock(path: Path) -> Iterator[None]:
    """The kernel's lock, which it takes back when the process ends in whatever way."""
    handle = _locked_handle(path)
    _handles.add(handle)
    try:
        with contextlib.suppress(OSError):  # on a full disk the lock holds all the same, unsigned
            os.ftruncate(handle, 0)
            os.write(handle, _signature())
        yield
    finally:
        if handle in _handles:  # not in a forked child, which has no part in the lock
            # Removed before it is let go: a process that has the old file open notices and opens the new one.
            path.unlink(missing_ok=True)
            _handles.discard(handle)
            os.close(handle)


def _locked_handle(path: Path) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_file(handle, path):
                return handle
        except BlockingIOError as error:
            os.close(handle)
            raise _held(path) from error
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _is_file(handle: int, path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), path.stat())
    return False


_handles: set[int] = set()


def _forget_handles() -> None:
    """In a forked child: a data-loading worker that outlives its killed parent must not keep the parent's lock."""
    for handle in _handles:
        os.close(handle)
    _handles.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_handles)


@contextlib.contextmanager
def hold_exclusive_file(path: Path) -> Iterator[None]:
    """For platforms without the kernel's lock: a file that only one can create, void when its process is gone."""
    _create_exclusive(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _create_exclusive(path: Path) -> None:
    with contextlib.suppress(FileExistsError):
        return _write_signature(path)
    # One process at a time may judge and remove an old lock, or two could each remove the other's new one.
    judging = path.with_name(path.name + ".judging")
    try:
        os.close(os.open(judging, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    except FileExistsError as error:
        raise _held(judging) from error
    try:
        # Only a file that names a dead process is removed: it cannot have been replaced by a living one since.
        if _names_the_dead(path):
            path.unlink()
        return _write_signature(path)
    except FileExistsError as error:
        raise _held(path) from error
    finally:
        judging.unlink(missing_ok=True)


def _write_signature(path: Path) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        os.write(handle, _signature())
    finally:
        os.close(handle)


def _signature() -> bytes:
    return json.dumps({"process": os.getpid(), "host": socket.gethostname()}).encode()


def _holder(path: Path) -> tuple[int, str] | None:
    """The process and host in a lock file; None when it says nothing legible, as in the moment of its creation."""
    try:
        members = json.loads(path.read_bytes())
        return int(members["process"]), str(members["host"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _names_the_dead(path: Path) -> bool:
    holder = _holder(path)
    return holder is not None and holder[1] == socket.gethostname() and not is_alive(holder[0])


def _held(path: Path) -> HeldError:
    holder = _holder(path)
    who = "another process" if holder is None else f"process {holder[0]} on {holder[1]}"
    return HeldError(
        f"Expected {path.parent} to be free, got a lock held by {who}. "
        f"Let it finish or stop it; if it is gone, delete {path}."
    )


def is_alive(process: int) -> bool:
    """Whether a process with this number runs on this machine."""
    if sys.platform == "win32":
        import ctypes

        synchronize = 0x00100000
        handle = ctypes.windll.kernel32.OpenProcess(synchronize, False, process)
        if handle:
            ctypes.windll.kernel32.CloseHandle(handle)
        return bool(handle)
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
