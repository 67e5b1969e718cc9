"""A worker's side: a wave done in a folder of its own, by the same workshop that does it at home."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, final

import torch

from fopng.lab.cluster.errands import Errand, Failure, Letter, Report
from fopng.lab.cluster.parcels import Outgoing
from fopng.lab.data.errors import DataError
from fopng.lab.engine import Interrupted
from fopng.lab.engine.observers import Event, RunEnded, RunStarted, StepDone
from fopng.lab.runs.runner import Workshop
from fopng.lab.runs.store import Store
from fopng.lab.storage.locks import is_alive

LETTER_SECONDS = 1.0
"""The time between two letters, at the least."""

SENDING_SHARE = 0.05
"""The share of a worker's time that sending what it saved may take."""

Answer = Literal["go on", "stop", "lost"]

Post = Callable[[Letter], Answer]
"""Sends a letter and gives the answer; `lost` when it did not arrive."""


def do_errand(errand: Errand, post: Post) -> Report:
    """Do a wave, and report.

    Args:
        errand: the wave.
        post: sends a letter home.
    """
    torch.set_num_threads(errand.threads)
    with _scratch() as root:
        errand.parcel.unpack(root)
        outgoing, share = Outgoing(root), Share(len(errand.configs))
        correspondent = Correspondent(errand.name, outgoing, share, post)
        shop = Workshop(
            store=Store(root),
            device=torch.device(errand.device),
            trackers=errand.trackers,
            observers=[share],
            notice=correspondent.notices.append,
            should_stop=correspondent,
            save_seconds=errand.save_seconds,
            engine=errand.engine,
        )
        correspondent.write()
        try:
            shop.do(errand.configs)
        except Interrupted:
            return Report(correspondent.rest(), stopped=True)
        except Exception as error:
            return Report(correspondent.rest(), failure=_failure(error))
        return Report(correspondent.rest())


def _failure(error: Exception) -> Failure:
    message = f"{type(error).__name__}: {error}"
    return Failure(message, traceback.format_exc(), ends_everything=isinstance(error, DataError))


@final
class Share:
    """An observer that knows which share of a wave's steps is done."""

    def __init__(self, runs: int) -> None:
        self._runs, self._ended = runs, 0
        self._present = RunStarted("", 0, 0, 0, {})
        self._done = 0

    def observe(self, event: Event) -> None:
        """Count."""
        if isinstance(event, RunStarted):
            self._present, self._done = event, event.done
        elif isinstance(event, StepDone):
            self._done = event.step
        elif isinstance(event, RunEnded) and event.outcome in ("finished", "diverged"):
            self._ended += self._present.runs
            self._done = 0

    @property
    def fraction(self) -> float:
        """From 0 to 1."""
        present = self._done / self._present.steps if self._present.steps else 0.0
        return min(1.0, (self._ended + self._present.runs * present) / self._runs)


@final
class Correspondent:
    """Writes home while a wave goes on: how far it is, what it saved, what somebody may want to know.

    Args:
        errand: its name.
        outgoing: what changes in the worker's folder.
        share: how much is done.
        post: sends a letter.
    """

    def __init__(self, errand: str, outgoing: Outgoing, share: Share, post: Post) -> None:
        self._errand, self._outgoing, self._share, self._post = errand, outgoing, share, post
        self._due, self._to_stop = 0.0, False
        self._lost = Letter(errand)
        self.notices: list[str] = []

    def __call__(self) -> bool:
        """Whether to stop. Asked after every step, between two writes, which is when there is something to send."""
        if time.monotonic() >= self._due:
            self.write()
        return self._to_stop

    def write(self) -> None:
        """Send a letter; what did not arrive goes with the next."""
        started, letter = time.monotonic(), self._letter()
        answer = self._post(letter)
        self._lost = letter if answer == "lost" else Letter(self._errand)
        self._to_stop = answer == "stop"
        now = time.monotonic()
        self._due = now + max(LETTER_SECONDS, (now - started) / SENDING_SHARE)

    def rest(self) -> Letter:
        """What was not sent yet, for the report."""
        return self._letter()

    def _letter(self) -> Letter:
        notices, self.notices[:] = tuple(self.notices), []
        return Letter(self._errand, self._share.fraction, self._outgoing.changes(), notices).after(self._lost)


@contextmanager
def _scratch() -> Iterator[Path]:
    """A folder of this process; those that killed workers left go first."""
    parent = Path(tempfile.gettempdir()) / f"fopng-waves-{os.getuid() if hasattr(os, 'getuid') else 'user'}"
    parent.mkdir(mode=0o700, exist_ok=True)
    for left in parent.iterdir():
        process = left.name.partition("-")[0]
        if process.isdigit() and not is_alive(int(process)):
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{os.getpid()}-", dir=parent) as folder:
        yield Path(folder)
