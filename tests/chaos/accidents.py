"""What can happen to a process: killed, stopped, refused by the system, out of room."""

import builtins
import errno
import io
import os
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Act = Callable[[str, str], None]
"""Told of each file-system event, by its kind and path, just before it happens."""

CALLS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "fcntl.flock"}


def watch(folder: str, act: Act) -> None:
    """Tell of every event below a folder, from now on: calls, writes (half of what is written is on the disk then) and flushes."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in CALLS and (path := _path_of(event, arguments)).startswith(folder):
            act(event, path)

    def flushing(descriptor: int, real: Callable[[int], None] = os.fsync) -> None:
        if (path := _path_of_open(descriptor)).startswith(folder):
            act("fsync", path)
        real(descriptor)

    def opening(file: Any, mode: str = "r", *more: Any, real: Callable[..., Any] = io.open, **words: Any) -> Any:
        opened = real(file, mode, *more, **words)
        path = "" if isinstance(file, int) else os.path.abspath(os.fsdecode(file))
        return Written(opened, path, act) if path.startswith(folder) and set(mode) & set("wax+") else opened

    sys.addaudithook(hook)
    os.fsync = flushing
    io.open = builtins.open = opening  # type: ignore[assignment]


class Written:
    """A file that is being written, each time in two halves."""

    def __init__(self, file: Any, path: str, act: Act) -> None:
        self._file, self._path, self._act = file, path, act

    def write(self, data: Any) -> int:
        half = len(data) // 2
        done = self._file.write(data[:half])
        self._file.flush()
        self._act("write", self._path)
        return done + self._file.write(data[half:])

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "Written":
        self._file.__enter__()
        return self

    def __exit__(self, *details: Any) -> None:
        self._file.__exit__(*details)


class Accident:
    """Nothing happens."""

    def arm(self, folder: str) -> None:
        """Let it happen to this process, which works in a folder."""


@dataclass
class Count(Accident):
    """Only counts the events; the number stands in a file descriptor that the caller reads."""

    pipe: int

    def arm(self, folder: str) -> None:
        watch(folder, lambda event, path: os.write(self.pipe, b".") and None)


@dataclass
class SignalAt(Accident):
    """A signal to itself at an event: SIGKILL is a crash at the worst moment."""

    number: int
    event: int

    def arm(self, folder: str) -> None:
        left = [self.event]

        def act(event: str, path: str) -> None:
            left[0] -= 1
            if left[0] == -1:
                os.kill(os.getpid(), self.number)

        watch(folder, act)


@dataclass
class Refuse(Accident):
    """The system refuses a call, once or from then on.

    Args:
        code: with which error.
        event: the first that is refused.
        times: how many are; a full disk refuses all that write.
    """

    code: int
    event: int
    times: int = 1

    def arm(self, folder: str) -> None:
        seen = [0]

        def act(event: str, path: str) -> None:
            seen[0] += 1
            full = self.code != errno.ENOSPC or event in ("write", "fsync", "os.mkdir")
            if 0 <= seen[0] - 1 - self.event < self.times and full:
                raise OSError(self.code, os.strerror(self.code), path)

        watch(folder, act)


@dataclass
class Room(Accident):
    """No file may grow beyond so many bytes, as on a full disk; or the process dies of it, in the middle of a write."""

    size: int
    deadly: bool

    def arm(self, folder: str) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if self.deadly else signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def _path_of(event: str, arguments: tuple[Any, ...]) -> str:
    name = arguments[0]
    if isinstance(name, int):
        return _path_of_open(name)
    if not isinstance(name, str | bytes):
        return ""
    at = arguments[-1] if event in ("os.remove", "os.mkdir", "os.rmdir") else None
    base = _path_of_open(at) if isinstance(at, int) and at >= 0 else os.getcwd()
    return os.path.normpath(os.path.join(base, os.fsdecode(name)))


def _path_of_open(descriptor: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""
