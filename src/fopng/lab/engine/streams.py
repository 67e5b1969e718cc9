"""Several pieces of work on one device at a time: threads that take turns here, while the device goes on with the work of all."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar, final

import torch

from fopng.lab.engine.costs import wait_for

_Item = TypeVar("_Item")

AHEAD = 8
"""Turns whose work a thread may have given to the device before it waits for the earliest of them.

Enough for the device to have something to do while a thread prepares a task; few, because who captures a graph waits for the
work of all.
"""


class Mark(Protocol):
    """A place in the work that a thread gave to its device."""

    def query(self) -> bool:
        """Whether the device is past it."""
        ...

    def synchronize(self) -> None:
        """Wait until it is."""
        ...


def _mark() -> Mark:
    mark = torch.cuda.Event()
    mark.record()
    return mark


@final
class Turns:
    """Of several threads one works at a time, and lets the next go on where nothing global is half done.

    What a thread gave to its device is done meanwhile, beside what the others gave: each has a stream of its own. The way
    torch multiplies (TF32 or not, which algorithms) belongs to the thread whose turn it is.

    Args:
        device: where the work is done.
        lanes: how many threads there are.
    """

    def __init__(self, device: torch.device, lanes: int = 1) -> None:
        self._device, self.lanes = device, lanes
        self._guard = threading.Lock()
        self._waiting: deque[threading.Semaphore] = deque()
        self._taken = False
        self._own = threading.local()
        self.failed = False
        """Whether a piece of work has ended with an error; the others should stop."""

    @contextmanager
    def lane(self) -> Iterator[None]:
        """Wait for the first turn; inside, work on a stream of one's own; the next goes on afterwards."""
        self._begin()
        try:
            if self._device.type != "cuda":
                yield
            else:
                stream = torch.cuda.Stream(self._device)
                with torch.cuda.stream(stream):
                    yield
                stream.synchronize()
        finally:
            # given up while nobody else captures anything
            self._own.__dict__.pop("marks", None)
            self._end()

    def give_way(self) -> None:
        """Let the others go on, and wait for the next turn; nothing happens where nobody waits."""
        with self._guard:
            if not self._waiting:
                return
            own, following = threading.Semaphore(0), self._waiting.popleft()
            self._waiting.append(own)
        put_back = _arithmetic()
        following.release()
        own.acquire()
        put_back()

    def end_turn(self) -> None:
        """Let the others go on after a few steps; come back when the device is no more than `AHEAD` such turns behind."""
        if self.lanes == 1:
            return
        marks: deque[Mark] = self._own.__dict__.setdefault("marks", deque())
        if self._device.type == "cuda":
            marks.append(_mark())
        self.give_way()
        while len(marks) > AHEAD:
            self._wait_for(marks.popleft())

    def wait(self) -> None:
        """Wait for what this thread gave to the device; the others go on meanwhile."""
        if self._device.type != "cuda":
            wait_for(self._device)
            return
        self._wait_for(_mark())

    def _wait_for(self, mark: Mark) -> None:
        while self._waiting and not mark.query():
            self.give_way()
        mark.synchronize()

    def _begin(self) -> None:
        with self._guard:
            if not self._taken:
                self._taken = True
                return
            own = threading.Semaphore(0)
            self._waiting.append(own)
        own.acquire()

    def _end(self) -> None:
        with self._guard:
            self._taken = bool(self._waiting)
            following = self._waiting.popleft() if self._waiting else None
        if following is not None:
            following.release()


def in_turns(items: Sequence[_Item], work: Callable[[_Item, Turns], None], *, lanes: int, device: torch.device) -> None:
    """Work on every item, on so many at a time; each is begun in order, by a thread that takes its turns.

    An error ends it: no more items are begun, `Turns.failed` tells the others, and it is raised when they have stopped.
    """
    lanes = min(lanes, len(items))
    if lanes < 2:
        for item in items:
            work(item, Turns(device))
        return
    turns, left, errors = Turns(device, lanes), deque(items), list[BaseException]()

    def take() -> None:
        while left and not turns.failed:
            try:
                with turns.lane():
                    if not left or turns.failed:
                        return
                    with _noted(turns):
                        work(left.popleft(), turns)
            except BaseException as error:
                errors.append(error)
                turns.failed = True

    put_back = _arithmetic()
    # daemons: when this thread is told a second time to stop, it waits for nobody
    threads = [threading.Thread(target=take, daemon=True) for _ in range(lanes)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        turns.failed = True
        put_back()
    if errors:
        raise errors[0]


@contextmanager
def _noted(turns: Turns) -> Iterator[None]:
    """An error inside is told while nobody else has begun anything."""
    try:
        yield
    except BaseException:
        turns.failed = True
        raise


def _arithmetic() -> Callable[[], None]:
    """The way torch multiplies just now, as a call that puts it back."""
    cudnn = torch.backends.cudnn
    tf32 = torch.backends.cuda.matmul.allow_tf32
    flags = cudnn.enabled, cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32

    def put_back() -> None:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        cudnn.enabled, cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32 = flags

    return put_back
