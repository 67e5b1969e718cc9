"""Results as data frames, for tables, charts and CSV: a row a run, or a row an accuracy."""

from collections.abc import Iterable, Iterator
from itertools import zip_longest

import pandas as pd

from fopng.lab.runs.config import canonical_json
from fopng.lab.runs.reference import JOINT, intransigence
from fopng.lab.runs.result import RunResult
from fopng.lab.runs.scores import scores_of

RUN = (
    *("key", "benchmark", "dataset", "scenario", "protocol", "method"),
    *("settings", "seed", "validation", "experiments", "status"),
)
"""The columns that say which run it is; `settings` as canonical JSON, `experiments` as a tuple of names."""

ACCURACY = ("part", "after_task", "on_task", "accuracy", "lost")


def frame(results: Iterable[RunResult]) -> pd.DataFrame:
    """A row for each run: which it is, and a column for each score, NaN where a run does not define it.

    The last column is the intransigence against joint runs that are among the results. For a row for each run and
    experiment: `frame(results).explode("experiments")`.
    """
    results = list(results)
    shown = scores_of(results)
    rows = [{**_run(result), **{score.name: score.of(result) for score in shown}} for result in results]
    table = pd.DataFrame(rows, columns=[*RUN, *(score.name for score in shown)])
    joint = [result for result in results if result.config.method == JOINT]
    table["intransigence"] = [intransigence(result, joint) for result in results]
    return table.astype(dict.fromkeys(table.columns[len(RUN) :], "float64"))


def accuracy_frame(results: Iterable[RunResult]) -> pd.DataFrame:
    """A row for each accuracy that was measured, with what was lost since the task's end.

    Which run, `part` (test or validation), `after_task` and `on_task` from 1.
    """
    return pd.DataFrame([row for result in results for row in _accuracies(result)], columns=[*RUN, *ACCURACY])


def _run(result: RunResult) -> dict[str, object]:
    config = result.config
    return {
        "key": config.key,
        "benchmark": config.benchmark,
        "dataset": config.dataset,
        "scenario": config.scenario,
        "protocol": config.protocol,
        "method": config.method,
        "settings": canonical_json(config.settings),
        "seed": config.seed,
        "validation": config.validation,
        "experiments": result.experiments,
        "status": result.status,
    }


def _accuracies(result: RunResult) -> Iterator[dict[str, object]]:
    run = _run(result)
    parts = {
        "test": (result.accuracy, result.lost),
        "validation": (result.validation_accuracy or (), result.validation_lost),
    }
    for part, (matrix, lost) in parts.items():
        for k, row in enumerate(matrix):
            for j, (accuracy, own) in enumerate(zip_longest(row, lost[k] if lost else ())):
                if accuracy is not None:
                    found = {"after_task": k + 1, "on_task": j + 1, "accuracy": accuracy, "lost": own}
                    yield {**run, "part": part, **found}
