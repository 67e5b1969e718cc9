"""How runs go on, on stderr: bars with the time left on a terminal, plain lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fopng.lab.engine.observers import Event, progress
from fopng.lab.engine.observers.progress import duration
from fopng.lab.runs.result import RunResult
from fopng.lab.schedule.view import Tally, View

LINE_SECONDS = 10.0
"""The time between two lines of a log about a cluster."""


@final
class RunView(View):
    """The run or group under way in this process: a bar on a terminal, lines in a log."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def over(self, runs: int) -> Iterator[None]:
        """Shown while the context lasts."""
        self._shown = progress(self._console, runs=runs)
        yield

    def observe(self, event: Event) -> None:
        """Show where the run is."""
        self._shown.observe(event)


@final
class CountView(View):
    """How many runs are done, for runs in other processes or on several streams."""

    def __init__(self, console: Console) -> None:
        self._console, self._done = console, 0
        self._bars = Progress(
            MofNCompleteColumn(),
            TextColumn("runs"),
            BarColumn(bar_width=None),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            console=console,
            disable=not console.is_terminal,
            transient=True,
            expand=True,
            speed_estimate_period=300,
        )

    @contextmanager
    def over(self, runs: int) -> Iterator[None]:
        """Shown while the context lasts."""
        self._runs, self._started = runs, time.monotonic()
        self._bar = self._bars.add_task("", total=runs)
        with self._bars:
            yield

    def ended(self, result: RunResult) -> None:
        """Count a run; in a log, write a line."""
        self._done += 1
        self._bars.advance(self._bar)
        if not self._console.is_terminal:
            config = result.config
            how = f"accuracy {100 * result.final_accuracy:.1f} %" if result.status == "finished" else result.status
            left = (time.monotonic() - self._started) / self._done * (self._runs - self._done)
            self._console.print(
                f"run {self._done}/{self._runs}, {config.benchmark} {config.method} seed {config.seed}: "
                f"{how}, {duration(left)} left",
                markup=False,
                soft_wrap=True,
            )


@final
class ClusterView(View):
    """Groups done, running, waiting and failed, runs a minute and the time left."""

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._started, self._said, self._line = clock(), clock(), ""
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=None))
        self._bars = Progress(*columns, console=console, disable=not console.is_terminal, transient=True, expand=True)
        self._bar = self._bars.add_task("Starting")

    @contextmanager
    def over(self, runs: int) -> Iterator[None]:
        """Shown while the context lasts. What Ray prints on stdout goes to stderr."""
        with redirect_stdout(sys.stderr), self._bars:
            yield

    def tally(self, tally: Tally) -> None:
        """Show how things stand: at once on a terminal, in a log every few seconds and at the end."""
        if self._console.is_terminal:
            words = self.words(tally)
            self._bars.update(self._bar, total=tally.runs, completed=tally.progress, description=words)
            return
        over = tally.running + tally.waiting == 0
        if over or self._clock() - self._said >= LINE_SECONDS:
            words, self._said = self.words(tally), self._clock()
            if words != self._line:
                self._console.print(words, markup=False, soft_wrap=True)
            self._line = words

    def words(self, tally: Tally) -> str:
        """The line that is shown."""
        groups = f"groups: {tally.done} done, {tally.running} running, {tally.waiting} waiting, {tally.failed} failed"
        passed = max(self._clock() - self._started, 1e-9)
        left = duration((tally.runs - tally.progress) * passed / tally.progress) if tally.progress else "unknown time"
        return (
            f"{groups}; runs: {tally.runs_done}/{tally.runs}, {60 * tally.runs_done / passed:.1f} a minute, {left} left"
        )
