"""`log.jsonl`: one line an event, readable while the run goes on and after it was killed."""

import dataclasses
import json
import math
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, final

from fopng.lab.engine.observers.events import (
    EpochStarted,
    Evaluated,
    Event,
    RunEnded,
    RunStarted,
    StepDone,
    TaskEnded,
    TaskStarted,
)
from fopng.lab.storage import atomic

_NAMES: Mapping[type, str] = {
    RunStarted: "run started",
    TaskStarted: "task started",
    EpochStarted: "epoch started",
    StepDone: "step",
    TaskEnded: "task ended",
    Evaluated: "evaluated",
    RunEnded: "run ended",
}


@final
class JsonLog:
    """Append every event to a file, and of the steps one in `every`, with what it measured.

    After a kill the run goes back to its last checkpoint, and steps that were logged before are logged again: the line
    `run started` says from which step on.
    """

    def __init__(self, path: Path, *, every: int) -> None:
        if every < 1:
            raise ValueError(f"Expected to log one step in 1 or more, got every={every}. Give a positive number.")
        self._path = path
        self._every = every

    def observe(self, event: Event) -> None:
        """Write a line."""
        if isinstance(event, StepDone):
            if event.step % self._every == 0:
                facts = {"task": event.task, "epoch": event.epoch, "step": event.step, **event.measure()}
                append_line(self._path, "step", facts)
            return
        if isinstance(event, RunStarted):
            _remove_torn_line(self._path)
        members = {field.name: getattr(event, field.name) for field in dataclasses.fields(event)}
        append_line(self._path, _NAMES[type(event)], members)


def append_line(path: Path, name: str, facts: Mapping[str, object]) -> None:
    """Append an event to a log, with the time.

    Args:
        path: the log.
        name: what happened.
        facts: what is known about it.
    """
    line = json.dumps(_plain({"event": name, "time": round(time.time(), 3), **facts}), allow_nan=False) + "\n"
    with atomic.as_write_error(path), path.open("ab") as file:
        file.write(line.encode())


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a log; a last one that was cut short is left out."""
    for line in path.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            yield json.loads(line)


def _remove_torn_line(path: Path) -> None:
    """Cut the file back to its last whole line, so that what a killed process left half written joins no other line."""
    with atomic.as_write_error(path):
        content = path.read_bytes() if path.exists() else b""
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            with path.open("r+b") as file:
                file.truncate(whole)


def _plain(value: object) -> object:
    """JSON has no word for NaN and infinity, and in a log they matter: they are written as texts."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    return value
