"""The result of a run, as a file that is committed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from fopng.lab.storage import atomic

Rows = Sequence[Sequence[float | None]]
"""Row k: after task k, one number a task; None for tasks not learnt yet."""


@final
@dataclass(frozen=True, kw_only=True)
class Cell:
    """A run that is to be done."""

    stream: str
    contender: str
    seed: int

    def path(self, folder: Path) -> Path:
        """Where its result is."""
        return folder / self.stream / f"{self.contender}-seed-{self.seed}.json"


@final
@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a run has found.

    Attributes:
        score: after each task, on each: accuracies, or for texts the mean loss of a byte in nats.
        before: of each task, just before it was learnt.
        lost: after each task, of each: the mean KL between the answers to its test data when it ended and now, in nats.
        kept_bytes: what the method kept of old tasks in the end.
        method: what the method itself measured, by name.
        diverged: whether a number was not finite.
    """

    score: Rows
    before: Sequence[float | None]
    lost: Rows
    kept_bytes: int
    method: Mapping[str, Any]
    diverged: bool = False


@final
@dataclass(frozen=True, kw_only=True)
class Record:
    """A run that was done.

    Attributes:
        cell: which.
        measured: what it found.
        settings: of its method, the rate among them.
        data: sizes and hashes of what it was trained and tested on.
        environment: versions, and how long it took.
    """

    cell: Cell
    measured: Measured
    settings: Mapping[str, Any]
    data: Mapping[str, Any]
    environment: Mapping[str, Any]

    @property
    def lost(self) -> list[float]:
        """What each old task has lost in the end."""
        return [value for value in self.measured.lost[-1][:-1] if value is not None]

    @property
    def final(self) -> float:
        """The mean score over all tasks in the end."""
        return float(np.mean([value for value in self.measured.score[-1] if value is not None]))

    @property
    def learnt(self) -> float:
        """The mean score of each later task when it had just been learnt."""
        return float(np.mean([row[task] for task, row in enumerate(self.measured.score) if task]))

    def save(self, folder: Path) -> None:
        """Write it, whole or not at all."""
        path = self.cell.path(folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_text(path, json.dumps(_rounded(asdict(self)), indent=1, sort_keys=True) + "\n")


def load_record(path: Path) -> Record:
    """A record from its file."""
    found = json.loads(path.read_text(encoding="utf-8"))
    return Record(**{**found, "cell": Cell(**found["cell"]), "measured": Measured(**found["measured"])})


def load_records(folder: Path) -> list[Record]:
    """Every record below a folder, by name."""
    return [load_record(path) for path in sorted(folder.glob("*/*.json"))]


def missing(cells: Iterable[Cell], folder: Path) -> list[Cell]:
    """Those that have no result there."""
    return [cell for cell in cells if not cell.path(folder).is_file()]


def _rounded(value: Any) -> Any:
    """Six digits, which are enough for tables; JSON has no word for what is not finite."""
    if isinstance(value, Mapping):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
