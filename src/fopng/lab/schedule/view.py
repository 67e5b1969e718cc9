"""What a person sees while runs go on. The command line draws it; here is one that draws nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import final

from fopng.lab.engine.observers import Event
from fopng.lab.runs.result import RunResult


@final
@dataclass(frozen=True, kw_only=True)
class Tally:
    """How the work on a cluster stands, in groups and in runs."""

    done: int
    running: int
    waiting: int
    failed: int
    runs: int
    runs_done: int
    progress: float
    """Runs' worth of work that is done, with the shares of those under way."""


class View:
    """Told how the runs of one call of `Runner.do` go on."""

    @contextmanager
    def over(self, runs: int) -> Iterator[None]:
        """Shown while the context lasts.

        Args:
            runs: the runs that are missing.
        """
        yield

    def observe(self, event: Event) -> None:
        """Something happened in a run that this process does."""

    def ended(self, result: RunResult) -> None:
        """A run has its result."""

    def tally(self, tally: Tally) -> None:
        """How the work stands. Only from a cluster."""
