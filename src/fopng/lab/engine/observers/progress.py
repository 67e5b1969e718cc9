"""Progress for people: a bar with the time left on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable
from typing import final

from fopng.core.extras import from_extra
from fopng.lab.engine.observers.events import Evaluated, Event, Observer, RunEnded, RunStarted, StepDone, TaskStarted

with from_extra("lab"):
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

BAR_SECONDS = 0.1

LINE_SECONDS = 5.0

TOLD_FROM = 0.02
"""The share of a run's steps after which its time is told: the first steps are slow."""

Clock = Callable[[], float]


def progress(console: Console, *, runs: int) -> Observer:
    """A bar where the console is a terminal, lines where it is a file or a pipe.

    Args:
        console: where to show it; the standard error, so that `--json` stays clean.
        runs: how many runs will be watched, one after another.
    """
    return ProgressBar(console, runs=runs) if console.is_terminal else ProgressLines(console, runs=runs)


@final
class _Position:
    """Where the runs stand, in words and numbers."""

    def __init__(self, runs: int) -> None:
        self.runs = runs
        self.number = 0
        self.run = RunStarted("", 0, 0, 0, {})
        self.task = 0
        self.done = 0
        self.average: float | None = None
        self._to_repeat = 0

    def take(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self.number += event.runs - self._to_repeat
            self._to_repeat = 0
            self.run, self.done, self.task, self.average = event, event.done, 0, None
        elif isinstance(event, TaskStarted):
            self.task = event.task
        elif isinstance(event, StepDone):
            self.done = event.step
        elif isinstance(event, Evaluated) and event.part == "test":
            self.average = event.average
        elif isinstance(event, RunEnded) and event.outcome == "failed":
            # What could not be done side by side comes again, in smaller company.
            self._to_repeat = self.run.runs

    @property
    def fraction(self) -> float:
        return self.done / self.run.steps if self.run.steps else 1.0

    @property
    def is_last(self) -> bool:
        return self.number >= self.runs

    def count(self) -> str:
        first = self.number - self.run.runs + 1
        return f"run {self.number}/{self.runs}" if self.run.runs == 1 else f"runs {first}-{self.number}/{self.runs}"

    def whole(self) -> float:
        """How many runs' worth of work is done."""
        return self.number - self.run.runs * (1 - self.fraction)

    def place(self) -> str:
        return f"{self.run.label}: task {self.task + 1}/{self.run.tasks}"

    def accuracy(self) -> str:
        return "" if self.average is None else f", accuracy {100 * self.average:.1f} %"


@final
class ProgressBar:
    """The present run and, when there are several, all of them together."""

    def __init__(self, console: Console, *, runs: int, clock: Clock = time.monotonic) -> None:
        self._position = _Position(runs)
        self._clock = clock
        self._shown = -BAR_SECONDS
        bar = (TextColumn("{task.description}"), BarColumn(bar_width=None), TaskProgressColumn())
        left = (TimeRemainingColumn(compact=True), TextColumn("left"))
        self._bars = Progress(*bar, *left, console=console, expand=True, transient=True, speed_estimate_period=60)
        self._all = self._bars.add_task("", total=runs, visible=runs > 1)
        self._one = self._bars.add_task("", total=1)

    def observe(self, event: Event) -> None:
        """Show where the run is, ten times a second at the most."""
        self._position.take(event)
        if isinstance(event, RunStarted):
            self._bars.start()
            self._bars.reset(self._one, total=max(event.steps, 1), completed=event.done)
        if not isinstance(event, StepDone) or self._clock() - self._shown >= BAR_SECONDS:
            self._show()
        if isinstance(event, RunEnded) and (self._position.is_last or event.outcome != "finished"):
            self._bars.stop()

    def _show(self) -> None:
        self._shown = self._clock()
        position = self._position
        self._bars.update(self._one, completed=position.done, description=escape(position.place()))
        self._bars.update(self._all, completed=position.whole(), description=position.count())


@final
class ProgressLines:
    """A line every few seconds, and one for each run that ends."""

    def __init__(self, console: Console, *, runs: int, clock: Clock = time.monotonic) -> None:
        self._position = _Position(runs)
        self._console = console
        self._clock = clock
        self._written = self._started = self._began = clock()
        self._whole: float | None = None

    def observe(self, event: Event) -> None:
        """Write a line when the last is some seconds old."""
        self._position.take(event)
        now = self._clock()
        if isinstance(event, RunStarted):
            self._started = now
            if self._whole is None:
                self._began, self._whole = now, self._position.whole()
        elif isinstance(event, RunEnded):
            self._write(f"{event.outcome} after {duration(event.seconds)}")
        elif now - self._written >= LINE_SECONDS:
            self._write(f"{100 * self._position.fraction:.0f} %, {self._left(now)}")

    def _write(self, words: str) -> None:
        self._written = self._clock()
        position = self._position
        count = f"{position.count()}, " if position.runs > 1 else ""
        self._console.print(
            f"{count}{position.place()}{position.accuracy()}, {words}", markup=False, highlight=False, soft_wrap=True
        )

    def _left(self, now: float) -> str:
        """How long these runs will take, and all together where there are more."""
        position, begun = self._position, self._whole or 0.0
        done = position.done - position.run.done
        if done < TOLD_FROM * position.run.steps:
            return "unknown time left"
        own = duration((now - self._started) / done * (position.run.steps - position.done))
        if position.run.runs == position.runs:
            return f"{own} left"
        rate = (now - self._began) / (position.whole() - begun)
        which = "this" if position.run.runs == 1 else "these"
        return f"{own} left of {which}, {duration(rate * (position.runs - position.whole()))} of all"


def duration(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> duration(5), duration(80), duration(7384)
    ('0:05', '1:20', '2:03:04')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
