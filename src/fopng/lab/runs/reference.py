"""The joint-training reference that a run is held against, when one was run."""

import math
from collections.abc import Iterable

from fopng.lab.runs import scores
from fopng.lab.runs.config import canonical_json
from fopng.lab.runs.result import RunResult

JOINT = "joint"
"""The method that learns all tasks together."""


def intransigence(result: RunResult, others: Iterable[RunResult]) -> float | None:
    """How far each task, when just learnt, is below joint training on the same tasks; None when that was not run.

    Args:
        result: a run of another method.
        others: runs among which the reference may be; of several, the most accurate is taken.
    """
    if result.config.method == JOINT:
        return None
    found = [other for other in others if other.config.method == JOINT and _comparable(result, other)]
    if not found:
        return None
    best = max(found, key=lambda other: -math.inf if math.isnan(other.final_accuracy) else other.final_accuracy)
    value = scores.intransigence(result.accuracy, best.accuracy[-1] if best.accuracy else None)
    return None if math.isnan(value) else value


def _comparable(first: RunResult, second: RunResult) -> bool:
    """Whether two runs differ in method and settings alone."""
    return _shared(first) == _shared(second)


def _shared(result: RunResult) -> str:
    members = result.config.as_dict()
    return canonical_json({name: value for name, value in members.items() if name not in ("method", "settings")})
