"""Progress for people: a bar with the time left on a terminal, plain lines elsewhere."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import final

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from fopng.lab.engine.observers.events import Evaluated, Event, RunEnded, RunStarted, StepDone, TaskStarted

BAR_SECONDS = 0.1

LINE_SECONDS = 5.0

TOLD_FROM = 0.02
"""The share of a run's steps after which the time left is shown: the first steps are slow."""

Clock = Callable[[], float]


def progress(console: Console, *, runs: int) -> "ProgressBar | ProgressLines":
    """A bar where the console is a terminal, lines where it is a file or a pipe.

    Args:
        console: where to show it; the standard error, so that `--json` stays clean.
        runs: how many runs will be watched, one after another or several together.
    """
    return ProgressBar(console, runs=runs) if console.is_terminal else ProgressLines(console, runs=runs)


class _Progress(ABC):
    """Follows where the runs stand."""

    def __init__(self, runs: int, clock: Clock) -> None:
        self._runs, self._clock = runs, clock
        self._number = self._repeated = 0
        self._run, self._task, self._done = RunStarted("", 0, 0, 0, {}), 0, 0
        self._average: float | None = None

    @final
    def observe(self, event: Event) -> None:
        """Follow an event and show what is new."""
        if isinstance(event, RunStarted):
            self._number += event.runs - self._repeated
            self._run, self._done, self._task, self._average, self._repeated = event, event.done, 0, None, 0
        elif isinstance(event, TaskStarted):
            self._task = event.task
        elif isinstance(event, StepDone):
            self._done = event.step
        elif isinstance(event, Evaluated) and event.part == "test":
            self._average = event.average
        elif isinstance(event, RunEnded) and event.outcome == "failed":
            # A group that failed comes again, in smaller groups.
            self._repeated = self._run.runs
        self._show(event)

    @abstractmethod
    def _show(self, event: Event) -> None:
        """Show what is new after an event."""

    @property
    def _fraction(self) -> float:
        return self._done / self._run.steps if self._run.steps else 1.0

    def _count(self) -> str:
        first, together = self._number - self._run.runs + 1, self._run.runs > 1
        return f"runs {first}-{self._number}/{self._runs}" if together else f"run {self._number}/{self._runs}"

    def _whole(self) -> float:
        """How many runs' worth of work is done."""
        return self._number - self._run.runs * (1 - self._fraction)

    def _place(self) -> str:
        return f"{self._run.label}: task {self._task + 1}/{self._run.tasks}"


@final
class ProgressBar(_Progress):
    """The present run and, when there are several, all of them together; drawn ten times a second at the most."""

    def __init__(self, console: Console, *, runs: int, clock: Clock = time.monotonic) -> None:
        super().__init__(runs, clock)
        self._shown = -BAR_SECONDS
        bar = (TextColumn("{task.description}"), BarColumn(bar_width=None), TaskProgressColumn())
        left = (TimeRemainingColumn(compact=True), TextColumn("left"))
        self._bars = Progress(*bar, *left, console=console, expand=True, transient=True, speed_estimate_period=60)
        self._all = self._bars.add_task("", total=runs, visible=runs > 1)
        self._one = self._bars.add_task("", total=1)

    def _show(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self._bars.start()
            self._bars.reset(self._one, total=max(event.steps, 1), completed=event.done)
        if not isinstance(event, StepDone) or self._clock() - self._shown >= BAR_SECONDS:
            self._shown = self._clock()
            self._bars.update(self._one, completed=self._done, description=escape(self._place()))
            self._bars.update(self._all, completed=self._whole(), description=self._count())
        if isinstance(event, RunEnded) and (self._number >= self._runs or event.outcome != "finished"):
            self._bars.stop()


@final
class ProgressLines(_Progress):
    """A line every few seconds, and one for each run that ends."""

    def __init__(self, console: Console, *, runs: int, clock: Clock = time.monotonic) -> None:
        super().__init__(runs, clock)
        self._console = console
        self._written = self._started = clock()
        self._began: tuple[float, float] | None = None
        """When the first run started, and how much was done by then."""

    def _show(self, event: Event) -> None:
        now = self._clock()
        if isinstance(event, RunStarted):
            self._started = now
            self._began = self._began or (now, self._whole())
        elif isinstance(event, RunEnded):
            self._write(f"{event.words} after {duration(event.seconds)}")
        elif now - self._written >= LINE_SECONDS:
            self._write(f"{100 * self._fraction:.0f} %, {self._left(now)}")

    def _write(self, words: str) -> None:
        self._written = self._clock()
        count = f"{self._count()}, " if self._runs > 1 else ""
        accuracy = "" if self._average is None else f", accuracy {100 * self._average:.1f} %"
        line = f"{count}{self._place()}{accuracy}, {words}"
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _left(self, now: float) -> str:
        """How long these runs will take, and all together where there are more."""
        done, (began, whole) = self._done - self._run.done, self._began or (now, 0.0)
        if done < TOLD_FROM * self._run.steps:
            return "unknown time left"
        own = duration((now - self._started) / done * (self._run.steps - self._done))
        if self._run.runs == self._runs:
            return f"{own} left"
        rate = (now - began) / (self._whole() - whole)
        which = "this" if self._run.runs == 1 else "these"
        return f"{own} left of {which}, {duration(rate * (self._runs - self._whole()))} of all"


def duration(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> duration(5), duration(80), duration(7384)
    ('0:05', '1:20', '2:03:04')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
