"""The result of a run: what was measured, and the scores that follow from it."""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, final

from fopng.lab.runs import scores
from fopng.lab.runs.config import FrozenMapping, RunConfig, Value, canonical_json, plain, plain_text
from fopng.lab.storage.atomic import readable_json
from fopng.lab.storage.parsing import read_json

Row = tuple[float | None, ...]

FORMAT = 4
"""Of `result.json`."""

STATUSES = ("finished", "diverged")


class DamagedFileError(ValueError):
    """A file of a run cannot be read: cut short, changed, or not what its name says."""


@final
@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What one run measured. Everything else about it is computed from these members."""

    config: RunConfig
    accuracy: tuple[Row, ...]
    """Row k: the test accuracies after task k, one a task; None where a task was not measured."""
    validation_accuracy: tuple[Row, ...] | None = None
    """The same on the held-out part, when there was one."""
    lost: tuple[Row, ...] | None = None
    """Row k: after task k, how far the test answers are from those at each task's end; None where it was not measured.

    The mean KL divergence in nats over a task's samples, 0 for the task just learnt."""
    validation_lost: tuple[Row, ...] | None = None
    """The same on the held-out part."""
    initial_accuracy: Row | None = None
    """Before any training, for forward transfer."""
    accuracy_before: Row | None = None
    """On each task just before it was learnt, for forward transfer."""
    measured: Mapping[str, Row] = field(default_factory=dict)
    """What the method measured, by name, such as `removed_fraction`: one number or None a task."""
    seconds_by_phase: Mapping[str, float] = field(default_factory=dict)
    peak_memory_bytes: int | None = None
    environment: Mapping[str, Value] = field(default_factory=dict)
    """Versions, device, threads: what may explain a number and is no part of the configuration."""
    status: str = "finished"
    """`diverged`: the parameters were no longer numbers before the last task ended."""
    experiments: tuple[str, ...] = ()
    """The names of the experiments that asked for this run, such as `comparison` or `sweep/cifar`, in alphabetical order."""

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"Expected a status among {STATUSES}, got {self.status!r}. Use one of them.")
        _row("seconds_by_phase", list(self.seconds_by_phase.values()))
        measured = {name: _row(name, row) for name, row in self.measured.items()}
        changed: dict[str, object] = {
            "accuracy": _matrix("accuracy", self.accuracy),
            "validation_accuracy": _unless_none(_matrix, "validation_accuracy", self.validation_accuracy),
            "lost": _unless_none(_matrix, "lost", self.lost),
            "validation_lost": _unless_none(_matrix, "validation_lost", self.validation_lost),
            "initial_accuracy": _unless_none(_row, "initial_accuracy", self.initial_accuracy),
            "accuracy_before": _unless_none(_row, "accuracy_before", self.accuracy_before),
            "measured": FrozenMapping({name: row for name, row in measured.items() if set(row) - {None}}),
            "seconds_by_phase": FrozenMapping(self.seconds_by_phase),
            "environment": FrozenMapping(self.environment),
            "experiments": _names(self.experiments),
        }
        for name, value in changed.items():
            object.__setattr__(self, name, value)

    @property
    def average_accuracy(self) -> list[float]:
        """`A_1 .. A_T` on test."""
        return scores.average_accuracies(self.accuracy)

    @property
    def final_accuracy(self) -> float:
        """`A_T` on test."""
        return scores.final_average_accuracy(self.accuracy)

    @property
    def forgetting(self) -> float:
        """The mean fall of each task from its best."""
        return scores.forgetting(self.accuracy)

    @property
    def seconds(self) -> float:
        """All phases together; where other runs used the device meanwhile, a share that says little of this one."""
        return math.fsum(self.seconds_by_phase.values())

    @property
    def comparable_seconds(self) -> float | None:
        """All phases together, or None where runs of other methods used the device meanwhile: then its peak is not known either."""
        shared = self.environment.get("device") == "cuda" and self.peak_memory_bytes is None
        return None if shared else self.seconds

    def named(self, *experiments: str) -> "RunResult":
        """The same result with more names of experiments."""
        return replace(self, experiments=(*self.experiments, *experiments))

    def as_dict(self) -> dict[str, object]:
        """Everything, with the scores, as `result.json` and `--json` show it."""
        config = self.config.as_dict()
        shown = ("benchmark", "dataset", "scenario", "protocol", "method", "settings", "seed")
        return {
            "format": FORMAT,
            "key": self.config.key,
            **{name: config[name] for name in shown},
            "experiments": list(self.experiments),
            "status": self.status,
            "average_accuracy": [None if math.isnan(value) else value for value in self.average_accuracy],
            **{score.name: score.of(self) for score in scores.scores_of([self])},
            "config": config,
            **self.stored(),
        }

    def stored(self) -> dict[str, object]:
        """All but the configuration, as plain data: what is measured and cannot be computed again."""
        return {name: plain(value) for name, value in vars(self).items() if name != "config"}

    @classmethod
    def from_dict(cls, members: Mapping[str, object]) -> "RunResult":
        """The result that `as_dict` described, in this format or an older one; the scores are computed anew."""
        members = _migrated(members)
        stored = {each.name for each in fields(cls)} - {"config"}
        missing = sorted({"config", *stored} - set(members))
        if missing:
            raise ValueError(f"Expected the members {missing} in a result, got {sorted(members)}. Run it again.")
        config = members["config"]
        if not isinstance(config, Mapping):
            raise TypeError(f"Expected a mapping for config, got {config!r}. Run it again.")
        kept: dict[str, Any] = {name: members[name] for name in stored}
        return cls(config=RunConfig.from_dict(config), **kept)


def check_format(version: object) -> None:
    """Refuse a file of another version of the package."""
    if version not in range(1, FORMAT + 1):
        raise ValueError(
            f"Expected a format from 1 to {FORMAT}, got {version!r}. Read it with the version that wrote it."
        )


def fingerprint(members: object) -> str:
    """The SHA-256 of members, whatever the order of their names."""
    return hashlib.sha256(canonical_json(members).encode("ascii")).hexdigest()


def check_whole(file: Mapping[str, Any], members: object) -> None:
    """Refuse members that are not those that were written, by the file's own fingerprint: formats 1 and 2 had none."""
    if file.get("format", 1) in range(3, FORMAT + 1) and file.get("sha256") != fingerprint(members):
        raise ValueError("Expected what was written, got other contents (SHA-256).")


def _migrated(members: Mapping[str, object]) -> Mapping[str, object]:
    """A result as format 4 has it.

    Formats up to 3 did not say what was lost. Format 1 had two measured quantities, as members of their own, and no experiments.
    """
    version = members.get("format", 1)
    check_format(version)
    if version == FORMAT:
        return members
    members = {**members, "lost": None, "validation_lost": None}
    if version != 1:
        return members
    removed, error = members["removed_fraction_by_task"], members.get("compression_error_by_task", ())
    return {**members, "measured": {"removed_fraction": removed, "compression_error": error}, "experiments": ()}


def read_result(path: Path) -> RunResult:
    """The result in a file; `DamagedFileError` when it holds none, and the system's error when it cannot be opened."""
    try:
        members = read_json(path)
        if not isinstance(members, dict):
            raise TypeError(f"Expected a JSON object, got {type(members).__name__}.")
        check_whole(members, {name: value for name, value in members.items() if name != "sha256"})
        return RunResult.from_dict(members)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise DamagedFileError(
            f"Expected the result of a run in {path}, got: {error} Delete it and run it again."
        ) from error


def result_text(result: RunResult) -> str:
    """The text of `result.json`."""
    members = result.as_dict()
    return readable_json({**members, "sha256": fingerprint(members)}) + "\n"


def _unless_none(rule: Callable[[str, object], object], name: str, value: object) -> object:
    return None if value is None else rule(name, value)


def _matrix(name: str, rows: object) -> tuple[Row, ...]:
    if not isinstance(rows, list | tuple):
        raise TypeError(f"Expected a list of rows in {name}, got {rows!r}. Give one row a task.")
    return tuple(_row(name, row) for row in rows)


def _row(name: str, row: object) -> Row:
    if not isinstance(row, list | tuple):
        raise TypeError(f"Expected a list of numbers in {name}, got {row!r}. Give one number or None a task.")
    return tuple(_number(name, value) for value in row)


def _number(name: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"Expected a number or None in {name}, got {value!r}. Give one number or None a task.")
    return float(value) if math.isfinite(value) else None


def _names(experiments: object) -> tuple[str, ...]:
    if not isinstance(experiments, list | tuple) or not all(isinstance(name, str) and name for name in experiments):
        raise TypeError(f"Expected names of experiments, got {experiments!r}. Give a list of texts.")
    return tuple(sorted({plain_text(name, "experiments") for name in experiments}))
