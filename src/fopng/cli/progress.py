"""Progress of downloads and of runs in other processes: bars with the time left on a terminal, plain lines in a log."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Self, final

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from fopng.cli.output import megabytes

if TYPE_CHECKING:
    from fopng.lab.runs.result import RunResult


class WithBars(AbstractContextManager["WithBars"]):
    """Bars that are there inside a `with`."""

    _bars: Progress

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bars.stop()


@final
class DownloadProgress(WithBars):
    """Shows what `fetch` reports, on stderr."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._console = Console(stderr=True, highlight=False)
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._files: dict[str, TaskID] = {}
        self._quarters: dict[str, int] = {}

    def report(self, file: str, done: int, total: int | None) -> None:
        """Called for every block that arrives."""
        if self._console.is_terminal:
            self._move_bar(file, done, total)
        else:
            self._say_quarter(file, done, total)

    def _move_bar(self, file: str, done: int, total: int | None) -> None:
        if file not in self._files:
            self._files[file] = self._bars.add_task(file, total=total)
        self._bars.update(self._files[file], completed=done, total=total)

    def _say_quarter(self, file: str, done: int, total: int | None) -> None:
        """A line at the start and for every quarter of a file."""
        quarter = 4 * done // total if total else 0
        if self._quarters.get(file) == quarter:
            return
        self._quarters[file] = quarter
        size = f" {megabytes(done)} of {megabytes(total)}" if total else ""
        self._console.print(f"{self._name}: {file}{size}", soft_wrap=True)


@final
class RunsProgress(WithBars):
    """How many runs are done, on stderr."""

    def __init__(self, console: Console, runs: int) -> None:
        self._console = console
        self._runs, self._done, self._started = runs, 0, time.monotonic()
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
        self._bar = self._bars.add_task("", total=runs)

    def advance(self, result: RunResult) -> None:
        """Called for every run that ends."""
        from fopng.lab.engine.observers.progress import duration

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
