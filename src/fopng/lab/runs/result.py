"""The result of a run: what was measured, and the scores that follow from it."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from fopng.lab.runs import scores
from fopng.lab.runs.config import FrozenMapping, RunConfig, Value, plain
from fopng.lab.storage.atomic import readable_json

Row = tuple[float | None, ...]

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
    initial_accuracy: Row | None = None
    """Before any training, for forward transfer."""
    accuracy_before: Row | None = None
    """On each task just before it was learnt, for forward transfer."""
    removed_fraction_by_task: Row = ()
    """The mean fraction of the gradient that the projection took away while each task was learnt; None without one."""
    compression_error_by_task: Row = ()
    """The share of the stored directions that compression had lost when each task ended; None where none was needed."""
    seconds_by_phase: Mapping[str, float] = field(default_factory=dict)
    peak_memory_bytes: int | None = None
    environment: Mapping[str, Value] = field(default_factory=dict)
    """Versions, device, threads: what may explain a number and is no part of the configuration."""
    status: str = "finished"
    """`diverged`: the parameters were no longer numbers before the last task ended."""

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"Expected a status among {STATUSES}, got {self.status!r}. Use one of them.")
        for name in ("accuracy", "validation_accuracy"):
            rows = getattr(self, name)
            object.__setattr__(self, name, None if rows is None else tuple(_row(name, row) for row in rows))
        for name in ("initial_accuracy", "accuracy_before", "removed_fraction_by_task", "compression_error_by_task"):
            row = getattr(self, name)
            object.__setattr__(self, name, None if row is None else _row(name, row))
        _row("seconds_by_phase", list(self.seconds_by_phase.values()))
        for name in ("seconds_by_phase", "environment"):
            object.__setattr__(self, name, FrozenMapping(getattr(self, name)))

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
    def removed_fraction(self) -> float | None:
        """The mean over the tasks that had something to project on; None for a method that never had."""
        return scores.Estimate.of(measured).mean if (measured := _measured(self.removed_fraction_by_task)) else None

    @property
    def compression_error(self) -> float | None:
        """The share of the stored directions that compression had lost in the end; None where none was needed."""
        return measured[-1] if (measured := _measured(self.compression_error_by_task)) else None

    @property
    def seconds(self) -> float:
        """All phases together; where other runs used the device meanwhile, a share that says little of this one."""
        return math.fsum(self.seconds_by_phase.values())

    @property
    def comparable_seconds(self) -> float | None:
        """All phases together, or None where runs of other methods used the device meanwhile: then its peak is not known either."""
        shared = self.environment.get("device") == "cuda" and self.peak_memory_bytes is None
        return None if shared else self.seconds

    def as_dict(self) -> dict[str, object]:
        """Everything, with the scores, as `result.json` and `--json` show it."""
        config = self.config.as_dict()
        shown = ("benchmark", "dataset", "scenario", "protocol", "method", "settings", "seed")
        members: dict[str, object] = {
            "key": self.config.key,
            **{name: config[name] for name in shown},
            "status": self.status,
            "average_accuracy": self.average_accuracy,
            "forgetting": self.forgetting,
            "backward_transfer": scores.backward_transfer(self.accuracy),
            "forward_transfer": scores.forward_transfer(self.accuracy_before, self.initial_accuracy),
            "learning_accuracy": scores.learning_accuracy(self.accuracy),
            "removed_fraction": self.removed_fraction,
            "compression_error": self.compression_error,
            "seconds": self.seconds,
            "config": config,
            **{name: plain(getattr(self, name)) for name in (*STORED, *LATER) if name != "status"},
        }
        return {name: _without_nan(value) for name, value in members.items()}

    @classmethod
    def from_dict(cls, members: Mapping[str, object]) -> "RunResult":
        """The result that `as_dict` described; the scores are computed anew."""
        missing = sorted({"config", *STORED} - set(members))
        if missing:
            raise ValueError(f"Expected the members {missing} in a result, got {sorted(members)}. Run it again.")
        config = members["config"]
        if not isinstance(config, Mapping):
            raise TypeError(f"Expected a mapping for config, got {config!r}. Run it again.")
        stored = {name: members[name] for name in (*STORED, *LATER) if name in members}
        return cls(config=RunConfig.from_dict(config), **stored)  # type: ignore[arg-type]  # checked in __post_init__


STORED = (
    "accuracy",
    "validation_accuracy",
    "initial_accuracy",
    "accuracy_before",
    "removed_fraction_by_task",
    "seconds_by_phase",
    "peak_memory_bytes",
    "environment",
    "status",
)
"""The members that are measured; everything else in `as_dict` follows from them and from the configuration."""

LATER = ("compression_error_by_task",)
"""Members that results of earlier versions do not have."""


def read_result(path: Path) -> RunResult:
    """The result in a file; `DamagedFileError` when it holds none, and the system's error when it cannot be opened."""
    content = path.read_bytes()
    try:
        members = json.loads(content)
        if not isinstance(members, dict):
            raise TypeError(f"Expected a JSON object, got {type(members).__name__}.")
        return RunResult.from_dict(members)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedFileError(
            f"Expected the result of a run in {path}, got: {error} Delete it and run it again."
        ) from error


def result_text(result: RunResult) -> str:
    """The text of `result.json`."""
    return readable_json(result.as_dict()) + "\n"


def _row(name: str, row: object) -> Row:
    if not isinstance(row, list | tuple):
        raise TypeError(f"Expected a list of numbers in {name}, got {row!r}. Give one number or None a task.")
    return tuple(_number(name, value) for value in row)


def _number(name: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"Expected a number or None in {name}, got {value!r}. Give one number or None a task.")
    return None if math.isnan(value) else float(value)


def _measured(row: Row) -> list[float]:
    return [value for value in row if value is not None]


def _without_nan(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [_without_nan(member) for member in value]
    if isinstance(value, dict):
        return {name: _without_nan(member) for name, member in value.items()}
    return value
