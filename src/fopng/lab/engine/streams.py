"""Several groups of runs on one device: a thread and a CUDA stream each; one thread runs at a time, the device works for all."""

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
"""Slices of work that a thread may have queued on the device before it waits for the earliest of them.

Enough for the device to have something to do while a thread prepares a task; few, because a thread that captures a graph waits
for the work of all.
"""


class Mark(Protocol):
    """A point in the work that a thread queued on its device."""

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
class StreamScheduler:
    """Runs one of several threads at a time; a thread lets the next go on where nothing global is half done.

    What a thread queued on the device is done meanwhile, beside what the others queued: each has a stream of its own. The way
    torch multiplies (TF32 or not, which algorithms) is kept for each thread.

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
        """Wait until this thread may run; inside it works on a stream of its own; afterwards the next thread goes on."""
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

    def let_others_run(self) -> None:
        """Let the other threads run, then go on; nothing happens where none waits."""
        with self._guard:
            if not self._waiting:
                return
            # queued before the next one runs, so that it can let this one go on at once
            own, following = threading.Semaphore(0), self._waiting.popleft()
            self._waiting.append(own)
        put_back = _arithmetic()
        following.release()
        own.acquire()
        put_back()

    def end_slice(self) -> None:
        """Let the other threads run after a few steps; go on when the device is no more than `AHEAD` such slices behind."""
        if self.lanes == 1:
            return
        marks: deque[Mark] = self._own.__dict__.setdefault("marks", deque())
        if self._device.type == "cuda":
            marks.append(_mark())
        self.let_others_run()
        while len(marks) > AHEAD:
            self._wait_for(marks.popleft())

    def wait(self) -> None:
        """Wait for what this thread queued on the device; the others run meanwhile."""
        if self._device.type != "cuda":
            wait_for(self._device)
            return
        self._wait_for(_mark())

    def _wait_for(self, mark: Mark) -> None:
        while self._waiting and not mark.query():
            self.let_others_run()
        mark.synchronize()

    def _begin(self) -> None:
        """Queue, and wait until the thread before lets this one run."""
        with self._guard:
            own = threading.Semaphore(0 if self._taken else 1)
            if self._taken:
                self._waiting.append(own)
            self._taken = True
        own.acquire()

    def _end(self) -> None:
        """Let the first thread of the queue run."""
        with self._guard:
            self._taken = bool(self._waiting)
            following = self._waiting.popleft() if self._waiting else threading.Semaphore()
        following.release()


def interleave(
    items: Sequence[_Item], work: Callable[[_Item, StreamScheduler], None], *, lanes: int, device: torch.device
) -> None:
    """Work on every item, on so many at a time, each in a thread and begun in order.

    After an error no more items are begun, `failed` tells the other threads, and the error is raised when they have stopped.
    """
    lanes = min(lanes, len(items))
    if lanes < 2:
        for item in items:
            work(item, StreamScheduler(device))
        return
    streams, left, errors = StreamScheduler(device, lanes), deque(items), list[BaseException]()

    def take() -> None:
        while left and not streams.failed:
            try:
                with streams.lane():
                    if not left or streams.failed:
                        return
                    with _noted(streams):
                        work(left.popleft(), streams)
            except BaseException as error:
                errors.append(error)
                streams.failed = True

    put_back = _arithmetic()
    # daemons: when this thread is told a second time to stop, it waits for nobody
    threads = [threading.Thread(target=take, daemon=True) for _ in range(lanes)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        streams.failed = True
        put_back()
    if errors:
        raise errors[0]


@contextmanager
def _noted(streams: StreamScheduler) -> Iterator[None]:
    """Note an error before any other thread runs."""
    try:
        yield
    except BaseException:
        streams.failed = True
        raise


def _arithmetic() -> Callable[[], None]:
    """A call that puts back the way torch multiplies now."""
    cudnn = torch.backends.cudnn
    tf32 = torch.backends.cuda.matmul.allow_tf32
    flags = cudnn.enabled, cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32

    def put_back() -> None:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        cudnn.enabled, cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32 = flags

    return put_back
