"""`log.jsonl`: one line an event, readable while the run goes on and after it was killed."""

import dataclasses
import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, final

from fopng.lab.engine.observers.events import Event, RunStarted, Sampling, StepDone
from fopng.lab.storage import atomic
from fopng.lab.storage.parsing import parse_json


@final
class JsonLog(Sampling):
    """Append every event to a file, and of the steps one in `every`, with what it measured.

    After a kill the run goes back to its last checkpoint, and steps that were logged before are logged again: the line
    `run started` says from which step on.
    """

    def __init__(self, path: Path, *, every: int) -> None:
        super().__init__(every)
        self._path = path

    def observe(self, event: Event) -> None:
        """Write a line."""
        if isinstance(event, RunStarted):
            _remove_torn_line(self._path)
        facts = {field.name: getattr(event, field.name) for field in dataclasses.fields(event)}
        if isinstance(event, StepDone):
            if event.step % self.every:
                return
            facts |= facts.pop("measure")()
        append_line(self._path, event.kind, facts)


def append_line(path: Path, name: str, facts: Mapping[str, object]) -> None:
    """Append an event to a log, with the time; a whole line or nothing.

    Args:
        path: the log.
        name: what happened.
        facts: what is known about it.
    """
    line = json.dumps(_plain({"event": name, "time": round(time.time(), 3), **facts}), allow_nan=False) + "\n"
    with atomic.as_write_error(path), path.open("ab", buffering=0) as file:
        whole, left = file.tell(), line.encode()
        try:
            while left:
                left = left[file.write(left) :]
        except OSError:
            with suppress(OSError):
                file.truncate(whole)
            raise


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a log, as far as they can be read: one that was cut short or damaged is left out."""
    for line in path.read_bytes().split(b"\n")[:-1]:
        with suppress(ValueError):
            if isinstance(found := parse_json(line), dict):
                yield found


def _remove_torn_line(path: Path) -> None:
    """Cut the file back to its last whole line: what a killed process left half written must join no other line."""
    with atomic.as_write_error(path):
        content = path.read_bytes() if path.exists() else b""
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            with path.open("r+b") as file:
                file.truncate(whole)


def _plain(value: object) -> object:
    """JSON has no NaN and no infinity, and in a log they matter: they are written as texts."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    return value
