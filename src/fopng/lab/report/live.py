"""Runs as they go: what their folders say at a moment, from `config.json`, `log.jsonl` and `result.json`."""

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, final

from fopng.lab.benchmarks.registry import listing_order
from fopng.lab.engine.observers import read_log
from fopng.lab.engine.observers.progress import duration
from fopng.lab.runs import scores
from fopng.lab.runs.config import plain_text
from fopng.lab.storage.locks import is_held
from fopng.lab.storage.parsing import read_json

State = Literal["under way", "finished", "diverged", "unfinished"]


@final
@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a run is."""

    key: str
    benchmark: str
    protocol: str
    method: str
    seed: int
    state: State
    tasks: int
    """How many the run has; 0 before it started."""
    learnt: int
    """How many were learnt and measured."""
    steps: int
    step: int
    loss: float | None
    curve: list[float] = field(default_factory=list)
    """The mean accuracy over the tasks seen, after each task so far."""
    forgetting: float | None
    """How far the tasks before the last one fell from their best, so far."""
    seconds_left: float | None
    """At the pace since the run started or went on; None where it does not go on."""

    @property
    def share(self) -> float:
        """How much of the run is done."""
        return 1.0 if self.state == "finished" else self.step / self.steps if self.steps else 0.0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "share": round(self.share, 4)}


def snapshot(root: Path, now: float | None = None) -> list[Progress]:
    """Every run below a folder, in the order of benchmarks, methods and seeds."""
    now = time.time() if now is None else now
    found = (progress_of(path.parent, now) for path in sorted(root.rglob("config.json")))
    return sorted(
        (each for each in found if each is not None),
        key=lambda run: (listing_order(run.benchmark), run.protocol, run.method, run.seed, run.key),
    )


def progress_of(folder: Path, now: float) -> Progress | None:
    """How far the run in a folder is; None where its configuration cannot be read."""
    try:
        config = read_json(folder / "config.json")
        who = {name: config[name] for name in ("benchmark", "protocol", "method", "seed")}
        for text in who.values():
            plain_text(str(text), "a name")
    except (OSError, ValueError, TypeError, KeyError):
        return None
    seen = _seen(folder / "log.jsonl")
    result = _json(folder / "result.json")
    rows = [seen.rows[task] for task in sorted(seen.rows)]
    state = _state(folder, result)
    square = [row[: len(rows)] for row in rows]
    return Progress(
        **who,
        key=folder.name,
        state=state,
        tasks=seen.tasks,
        learnt=len(rows),
        steps=seen.steps,
        step=seen.steps if state == "finished" else seen.step,
        loss=seen.loss,
        curve=[value for value in scores.average_accuracies(square) if not math.isnan(value)],
        forgetting=_or_none(scores.forgetting(square)),
        seconds_left=seen.seconds_left(now) if state == "under way" else None,
    )


@dataclass
class _Seen:
    """What a log has said so far."""

    tasks: int = 0
    steps: int = 0
    done: int = 0
    step: int = 0
    started: float = 0.0
    last: float = 0.0
    loss: float | None = None
    rows: dict[int, list[float | None]] = field(default_factory=dict)

    def read(self, line: dict[str, Any]) -> None:
        event, when = line.get("event"), float(line.get("time", 0.0))
        if event == "run started":
            self.tasks, self.steps, self.done = int(line["tasks"]), int(line["steps"]), int(line["done"])
            self.step, self.started = self.done, when
        elif event == "step":
            self.step, self.loss = int(line["step"]), _number(line.get("loss"))
        elif event == "task ended" and self.tasks:
            self.step = max(self.step, round((int(line["task"]) + 1) * self.steps / self.tasks))
        elif event == "evaluated" and line["part"] == "test":
            self.rows[int(line["task"])] = [_number(value) for value in line["accuracies"]]
        self.last = max(self.last, when)

    def seconds_left(self, now: float) -> float | None:
        """At the pace since the run started or went on, less what went by since the last line."""
        if self.step <= self.done or not self.steps:
            return None
        pace = (self.last - self.started) / (self.step - self.done)
        return max(0.0, pace * (self.steps - self.step) - max(0.0, now - self.last))


def _seen(path: Path) -> _Seen:
    try:
        stat = path.stat()
    except OSError:
        return _Seen()
    return _read(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=4096)
def _read(path: Path, changed: int, size: int) -> _Seen:
    """What a log says; read again only when it has changed."""
    seen = _Seen()
    for line in read_log(path):
        try:
            seen.read(line)
        except (KeyError, TypeError, ValueError, OverflowError):
            continue
    return seen


def _json(path: Path) -> dict[str, Any] | None:
    try:
        found = read_json(path)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _state(folder: Path, result: dict[str, Any] | None) -> State:
    if result is not None:
        return "diverged" if result.get("status") == "diverged" else "finished"
    return "under way" if is_held(folder / "lock") else "unfinished"


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


COLUMNS = ("run", "state", "progress", "task", "accuracy, %", "forgetting, %", "loss", "left")


def cells_of(run: Progress) -> tuple[str, ...]:
    """A run as words, a cell for each of `COLUMNS`."""
    return (
        f"{run.benchmark} {run.method} seed {run.seed}, {run.protocol}",
        run.state,
        f"{100 * run.share:.0f} %",
        f"{min(run.learnt + (run.state == 'under way'), run.tasks)}/{run.tasks}" if run.tasks else "",
        f"{sparks(run.curve)} {100 * run.curve[-1]:.1f}" if run.curve else "",
        "" if run.forgetting is None else f"{100 * run.forgetting:.1f}",
        "" if run.loss is None or run.state != "under way" else f"{run.loss:.3g}",
        "" if run.seconds_left is None else duration(run.seconds_left),
    )


def sparks(curve: Sequence[float]) -> str:
    """A curve of fractions as blocks, the last ten values.

    >>> sparks([1.0, 0.6, 0.5, 0.1])
    '█▅▅▁'
    """
    return "".join("▁▂▃▄▅▆▇█"[min(7, int(8 * value))] for value in curve[-10:])


def summary_of(runs: Sequence[Progress]) -> str:
    """How many runs are where, and how long those under way still take."""
    counts = Counter(run.state for run in runs)
    told = [f"{count} {state}" for state, count in counts.items()]
    left = [run.seconds_left for run in runs if run.seconds_left is not None]
    return ", ".join(told or ["no runs yet"]) + (f"; {duration(max(left))} left of those under way" if left else "")
