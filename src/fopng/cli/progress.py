"""Progress of downloads on stderr: bars with the time left on a terminal, plain lines in a log."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self, final

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from fopng.cli.output import megabytes


@final
class DownloadProgress(AbstractContextManager["DownloadProgress"]):
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

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bars.stop()

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
