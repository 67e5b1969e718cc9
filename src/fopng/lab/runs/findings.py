"""What experiments show, as values: how accuracy responds to a sweep or an ablation.

Everything is computed from the results that it holds, so that a page, a table and `--json` say the same.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from fopng.lab.runs import scores
from fopng.lab.runs.config import FrozenMapping, Value, canonical_json, differing, plain
from fopng.lab.runs.result import RunResult
from fopng.lab.runs.scores import Estimate


@dataclass(frozen=True, kw_only=True)
class Runs(ABC):
    """Runs with the same settings, over seeds."""

    results: tuple[RunResult, ...]

    @property
    @abstractmethod
    def accuracy(self) -> Estimate:
        """The final accuracy over all tasks."""

    @property
    def diverged(self) -> int:
        """How many runs diverged."""
        return sum(result.status == "diverged" for result in self.results)

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {"diverged": self.diverged, "runs": [result.config.key for result in self.results]}


@final
@dataclass(frozen=True, kw_only=True)
class Point(Runs):
    """One choice of settings in a sweep, measured on the held-out part."""

    settings: Mapping[str, Value]
    """Those that the sweep varies."""
    refused: str | None = None
    """Why it may not be chosen; None when it may."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", FrozenMapping(self.settings))

    @property
    def accuracy(self) -> Estimate:
        """The final accuracy over all tasks, on the held-out part."""
        return Estimate.of([final_validation_accuracy(result) for result in self.results])

    @property
    def first_task(self) -> float:
        """The least accuracy on the first task when it had just been learnt; NaN when a run did not get there."""
        found = [_first_task(result) for result in self.results]
        return math.nan if any(map(math.isnan, found)) else min(found, default=math.nan)

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "settings": plain(self.settings),
            "validation_accuracy": estimate_as_dict(self.accuracy),
            "first_task_accuracy": number_or_none(self.first_task),
            "refused": self.refused,
            **super().as_dict(),
        }


@final
@dataclass(frozen=True, kw_only=True)
class Response:
    """How a method responded to the settings of a sweep on a benchmark, and what was chosen."""

    benchmark: str
    protocol: str
    method: str
    points: tuple[Point, ...]
    """In the order of the sweep."""
    chosen: Point | None
    """None where no point could be chosen."""
    notes: tuple[str, ...] = ()
    """What somebody who uses the choice should know: ties, runs that diverged, a choice at the grid's edge."""

    @property
    def names(self) -> list[str]:
        """The settings that vary, in alphabetical order."""
        return differing([point.settings for point in self.points])

    def profile(self, name: str) -> list[tuple[Value, Point]]:
        """For each value of a setting, in rising order, the best point that has it, whatever its other settings."""
        best: dict[str, Point] = {}
        for point in self.points:
            value = canonical_json(point.settings.get(name))
            if value not in best or _mean(point) > _mean(best[value]):
                best[value] = point
        found = [(point.settings.get(name), point) for point in best.values()]
        return sorted(found, key=lambda pair: rank(pair[0]))

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        chosen = None if self.chosen is None else self.chosen.as_dict()
        return {**vars(self), "chosen": chosen, "points": [point.as_dict() for point in self.points]}


@final
@dataclass(frozen=True, kw_only=True)
class Step(Runs):
    """One value of an ablated setting, measured on test."""

    value: Value

    @property
    def accuracy(self) -> Estimate:
        """The final accuracy over all tasks."""
        return Estimate.of(list(final_by_seed(self.results).values()))

    @property
    def forgetting(self) -> Estimate:
        """The mean fall of each task from its best."""
        return Estimate.of([result.forgetting for result in self.results])

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "value": plain(self.value),
            "accuracy": estimate_as_dict(self.accuracy),
            "forgetting": estimate_as_dict(self.forgetting),
            **super().as_dict(),
        }


@final
@dataclass(frozen=True, kw_only=True)
class Ablation:
    """One setting of a method varied, all others kept."""

    setting: str
    benchmark: str
    protocol: str
    method: str
    paper_value: Value
    """The one that the paper's comparisons use; None also stands for all samples."""
    steps: tuple[Step, ...]
    """In rising order; None, for all samples, is the last."""

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {**vars(self), "paper_value": plain(self.paper_value), "steps": [step.as_dict() for step in self.steps]}


def final_validation_accuracy(result: RunResult) -> float:
    """`A_T` on the held-out part; NaN where there is none, or the run did not end."""
    return scores.final_average_accuracy(result.validation_accuracy or ())


def final_by_seed(results: Sequence[RunResult]) -> dict[int, float | None]:
    """The final test accuracy of each seed; None where the run did not get there."""
    return {result.config.seed: number_or_none(result.final_accuracy) for result in results}


def estimate_as_dict(estimate: Estimate) -> dict[str, object]:
    """An estimate for JSON, with both of the paper's intervals."""
    return {
        "mean": number_or_none(estimate.mean),
        "half_width_68": number_or_none(estimate.half_width(0.68)),
        "half_width_95": number_or_none(estimate.half_width(0.95)),
        "count": estimate.count,
        "missing": estimate.missing,
    }


def rank(value: Value) -> tuple[bool, float, str]:
    """A key that sorts values as people expect: numbers by size, then words, and None, which stands for all, last.

    >>> sorted([None, 16, "a", 1], key=rank)
    [1, 16, 'a', None]
    """
    number = float(value) if isinstance(value, int | float) else math.inf
    return value is None, number, "" if value is None else canonical_json(value)


def number_or_none(value: float) -> float | None:
    """A number for JSON, which has no NaN."""
    return None if math.isnan(value) else value


def _mean(point: Point) -> float:
    mean = point.accuracy.mean
    return -math.inf if math.isnan(mean) or point.refused else mean


def _first_task(result: RunResult) -> float:
    measured = result.validation_accuracy or result.accuracy
    first = measured[0][0] if measured and measured[0] else None
    return math.nan if first is None else first
