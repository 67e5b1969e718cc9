"""The joint-training reference that a run is held against, when one was run."""

import contextlib
import math
from collections.abc import Iterable

from fopng.lab.runs import scores
from fopng.lab.runs.config import canonical_json
from fopng.lab.runs.result import DamagedFileError, RunResult, read_result
from fopng.lab.runs.store import Store, folder_name

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
    found = [other for other in others if other.config.method == JOINT and _shared(result) == _shared(other)]
    best = max(
        found, key=lambda other: -math.inf if math.isnan(other.final_accuracy) else other.final_accuracy, default=None
    )
    if best is None:
        return None
    value = scores.intransigence(result.accuracy, best.accuracy[-1] if best.accuracy else None)
    return None if math.isnan(value) else value


def joint_runs(store: Store, results: Iterable[RunResult]) -> list[RunResult]:
    """The references for these results that are in a folder of runs, without those that are among them already."""
    results = list(results)
    known = {result.config.key for result in results}
    found = []
    for benchmark in sorted({result.config.benchmark for result in results}):
        for path in sorted((store.root / folder_name(benchmark) / JOINT).glob("*/result.json")):
            if path.parent.name not in known:
                with contextlib.suppress(DamagedFileError):
                    found.append(read_result(path))
    return found


def _shared(result: RunResult) -> str:
    """What two runs have in common that differ in method and settings alone."""
    members = result.config.as_dict()
    return canonical_json({name: value for name, value in members.items() if name not in ("method", "settings")})
