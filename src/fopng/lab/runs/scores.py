"""The scores of a run, in one table, and the mean and interval of a score over seeds.

A new score is one entry in `SCORES`: result files, CSV, `--json`, tables and the report iterate over it.

Row `k` of the matrix holds the accuracies after task `k`, one a task. Entries that were not measured are NaN or None,
or left out at a row's end. A run is unfinished while it has fewer rows than tasks. A score that needs an entry that is
not there is NaN, so that nothing is averaged over less than it says.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fopng.lab.runs.result import RunResult

Accuracies = Sequence[float | None]
Matrix = Sequence[Accuracies]
Floats = NDArray[np.float64]


def as_matrix(accuracy: Matrix) -> Floats:
    """The rows as one array `[rows, tasks]`, NaN where nothing was measured.

    >>> as_matrix([[0.9], [0.8, 0.7]])
    array([[0.9, nan],
           [0.8, 0.7]])
    """
    tasks = max([len(accuracy), *map(len, accuracy)])
    matrix = np.full((len(accuracy), tasks), np.nan)
    for k, row in enumerate(accuracy):
        matrix[k, : len(row)] = _as_row(row)
    return matrix


def average_accuracies(accuracy: Matrix) -> list[float]:
    """`A_1 .. A_k`: after each task, the mean accuracy over the tasks seen.

    >>> average_accuracies([[1.0], [0.5, 0.9]])
    [1.0, 0.7]
    """
    return [float(row[: k + 1].mean()) for k, row in enumerate(as_matrix(accuracy))]


def final_average_accuracy(accuracy: Matrix) -> float:
    """`A_T`, the mean over all tasks after the last one; NaN while tasks are missing."""
    matrix = as_matrix(accuracy)
    return float(matrix[-1].mean()) if finished(matrix) else math.nan


def forgetting(accuracy: Matrix) -> float:
    """Chaudhry et al. (2018): how far each task but the last fell from its best, `max_{j<=l<T} a_lj - a_Tj`, averaged.

    The maximum starts at the task itself, so that measuring tasks before they are learnt does not change the number.
    NaN for a single task and for an unfinished run.
    """
    matrix = as_matrix(accuracy)
    if not finished(matrix) or len(matrix) < 2:
        return math.nan
    last = len(matrix) - 1
    return float(np.mean([matrix[j:last, j].max() - matrix[last, j] for j in range(last)]))


def backward_transfer(accuracy: Matrix) -> float:
    """Lopez-Paz and Ranzato (2017): what later tasks did to earlier ones, the mean of `a_Tj - a_jj` over `j < T`."""
    matrix = as_matrix(accuracy)
    if not finished(matrix) or len(matrix) < 2:
        return math.nan
    return float((matrix[-1] - matrix.diagonal())[:-1].mean())


def mean_lost(lost: Matrix | None) -> float:
    """How far the answers to old tasks are in the end from those at each task's end; the mean over all tasks but the last.

    >>> mean_lost([[0.0], [0.25, 0.0]])
    0.25
    """
    found = _lost_in_the_end(lost)
    return float(found.mean()) if len(found) else math.nan


def worst_lost(lost: Matrix | None) -> float:
    """The same of the task of which it is most."""
    found = _lost_in_the_end(lost)
    return float(found.max()) if len(found) else math.nan


def _lost_in_the_end(lost: Matrix | None) -> Floats:
    """Task by task; nothing while tasks are missing, and NaN for one that never was the last one learnt, as in joint training."""
    matrix = as_matrix(lost or ())
    return (matrix[-1] - matrix.diagonal())[:-1] if finished(matrix) else np.empty(0)


def forward_transfer(before: Accuracies | None, initial: Accuracies | None) -> float:
    """Lopez-Paz and Ranzato (2017): what earlier tasks did for later ones, the mean of `a_{j-1,j} - b_j` over `j > 1`.

    Args:
        before: `a_{j-1,j}`, the accuracy on each task just before it was learnt; None when they were not measured.
        initial: `b`, the accuracies of the model at its random initialisation; None when they were not measured.

    >>> forward_transfer([0.1, 0.5], [0.1, 0.2])
    0.3
    """
    if before is None or initial is None or len(before) < 2:
        return math.nan
    return float((_as_row(before) - _reference(initial, len(before), "initial"))[1:].mean())


def learning_accuracy(accuracy: Matrix) -> float:
    """How well each task was known when it had just been learnt: the mean of `a_jj`."""
    matrix = as_matrix(accuracy)
    return float(matrix.diagonal().mean()) if finished(matrix) else math.nan


def intransigence(accuracy: Matrix, joint: Accuracies | None) -> float:
    """Chaudhry et al. (2018): how far each task, when just learnt, is below joint training: mean `a*_j - a_jj`.

    Args:
        accuracy: the matrix.
        joint: `a*`, one accuracy a task, of a model trained on all tasks together; None when none was run.
    """
    matrix = as_matrix(accuracy)
    if joint is None or not finished(matrix):
        return math.nan
    return float((_reference(joint, len(matrix), "joint") - matrix.diagonal()).mean())


@dataclass(frozen=True)
class Estimate:
    """The mean over seeds and how sure it is: `mean +- half_width(confidence)`, Student's t."""

    mean: float
    deviation: float
    """The sample's standard deviation (over n - 1); NaN for fewer than two values."""
    count: int
    """How many values there were."""
    missing: int
    """How many were asked for and not there (NaN or None): never dropped in silence."""

    @classmethod
    def of(cls, values: Sequence[float | None]) -> "Estimate":
        """The estimate from one value a seed.

        >>> Estimate.of([0.75, 0.75, None])
        Estimate(mean=0.75, deviation=0.0, count=2, missing=1)
        """
        there = [value for value in values if value is not None and not math.isnan(value)]
        mean = math.fsum(there) / len(there) if there else math.nan
        squares = math.fsum((value - mean) ** 2 for value in there)
        deviation = math.sqrt(squares / (len(there) - 1)) if len(there) > 1 else math.nan
        return cls(mean, deviation, len(there), len(values) - len(there))

    def half_width(self, confidence: float) -> float:
        """Half the width of the interval that holds the true mean with this confidence; NaN for one seed."""
        if self.count < 2:
            return math.nan
        if not 0 < confidence < 1:
            raise ValueError(f"Expected a confidence between 0 and 1, got {confidence}. Write 95 % as 0.95.")
        from scipy.special import stdtrit  # here, because it takes 0.2 s and most commands need no interval

        quantile = float(stdtrit(self.count - 1, (1 + confidence) / 2))
        return quantile * self.deviation / math.sqrt(self.count)

    @property
    def p_value(self) -> float:
        """How often a mean lies at least this far from 0 when the true one is 0: the two-sided t test; NaN for one seed.

        >>> round(Estimate.of([0.5, 1.0, 1.5]).p_value, 4)
        0.0742
        """
        if self.count < 2:
            return math.nan
        if self.deviation == 0:
            return float(self.mean == 0)
        from scipy.special import stdtr

        return 2 * float(stdtr(self.count - 1, -abs(self.mean) * math.sqrt(self.count) / self.deviation))


def paired_difference(first: Mapping[int, float | None], second: Mapping[int, float | None]) -> Estimate:
    """`first - second` seed by seed; a seed that only one of them has counts as missing.

    >>> paired_difference({0: 0.9, 1: 0.8}, {0: 0.7, 1: 0.6, 2: 0.5}).count
    2
    """
    pairs = [(first.get(seed), second.get(seed)) for seed in sorted({*first, *second})]
    return Estimate.of([None if a is None or b is None else a - b for a, b in pairs])


def holm(p_values: Sequence[float], level: float) -> list[bool]:
    """Which of several hypotheses are refuted when the chance of one mistake among all is to stay below `level`.

    Holm (1979): the smallest of k p-values is held to level / k, the next to level / (k - 1), until one is too large.

    >>> holm([0.01, 0.04, 0.03], 0.05)
    [True, False, False]
    """
    refuted = [False] * len(p_values)
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if not p_values[index] <= level / (len(p_values) - rank):
            break
        refuted[index] = True
    return refuted


def finished(matrix: Floats) -> bool:
    """Whether there is a row for every task: without, the scores of the end are not defined."""
    return len(matrix) > 0 and matrix.shape[0] == matrix.shape[1]


def _reference(values: Accuracies, tasks: int, name: str) -> Floats:
    if len(values) != tasks:
        raise ValueError(
            f"Expected one {name} accuracy for each of {tasks} tasks, got {len(values)}. "
            "Measure the reference on the same tasks."
        )
    return _as_row(values)


def _as_row(values: Accuracies) -> Floats:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


Unit = Literal["fraction", "nats", "seconds", "bytes", "number"]


@final
@dataclass(frozen=True)
class Score:
    """One number of a run, wherever runs are shown."""

    name: str
    """In files and on the command line."""
    title: str
    """For people, at the head of a column."""
    compute: Callable[["RunResult"], float | None]
    unit: Unit = "fraction"
    """What the number counts; a fraction of 1 is shown in percent."""
    higher_is_better: bool | None = None
    """None where neither is."""

    def of(self, result: "RunResult") -> float | None:
        """The score of a run; None where the run does not define it."""
        value = self.compute(result)
        if value is None or not math.isfinite(value):
            return None
        return value if isinstance(value, int) else float(value)

    def text(self, value: float | None) -> str:
        """A value for people, with its unit."""
        if value is None or math.isnan(value):
            return "\N{EN DASH}"
        if self.unit == "fraction":
            return f"{100 * value:.2f} %"
        if self.unit == "bytes":
            return f"{value / 1e6:.0f} MB"
        return f"{value:.1f} s" if self.unit == "seconds" else f"{value:.4g}{' nats' * (self.unit == 'nats')}"


SCORES: list[Score] = [
    Score("final_accuracy", "Final accuracy", lambda run: final_average_accuracy(run.accuracy), higher_is_better=True),
    Score("forgetting", "Forgetting", lambda run: forgetting(run.accuracy), higher_is_better=False),
    Score("backward_transfer", "Backward transfer", lambda run: backward_transfer(run.accuracy), higher_is_better=True),
    Score(
        "forward_transfer",
        "Forward transfer",
        lambda run: forward_transfer(run.accuracy_before, run.initial_accuracy),
        higher_is_better=True,
    ),
    Score("really_lost", "Really lost", lambda run: mean_lost(run.lost), "nats", higher_is_better=False),
    Score("really_lost_worst", "Worst task lost", lambda run: worst_lost(run.lost), "nats", higher_is_better=False),
    Score("lost_measured", "Lost as measured", lambda run: _last(run, "lost_measured"), "nats", higher_is_better=False),
    Score("lost_worst", "Worst as measured", lambda run: _last(run, "lost_worst"), "nats", higher_is_better=False),
    Score("learning_accuracy", "Learning accuracy", lambda run: learning_accuracy(run.accuracy), higher_is_better=True),
    Score("removed_fraction", "Gradient removed", lambda run: _mean_measured(run, "removed_fraction")),
    Score(
        "compression_error",
        "Lost in compression",
        lambda run: _last(run, "compression_error"),
        higher_is_better=False,
    ),
    Score("seconds", "Time", lambda run: run.seconds, "seconds", higher_is_better=False),
    Score("peak_memory_bytes", "Peak memory", lambda run: run.peak_memory_bytes, "bytes", higher_is_better=False),
]
"""Every score of a run. Those of a quantity that a method measured by name stand in `scores_of` without an entry here."""


def scores_of(results: Iterable["RunResult"]) -> list[Score]:
    """`SCORES`, and for each quantity that these runs measured and no entry is named after, its mean over the tasks."""
    named = {score.name for score in SCORES}
    more = dict.fromkeys(name for result in results for name in result.measured if name not in named)
    return [*SCORES, *(_mean_score(name) for name in more)]


def _mean_score(name: str) -> Score:
    return Score(name, name.replace("_", " ").capitalize(), lambda run: _mean_measured(run, name), "number")


def _mean_measured(run: "RunResult", name: str) -> float | None:
    return Estimate.of(_measured(run, name)).mean


def _last(run: "RunResult", name: str) -> float | None:
    return next(reversed(_measured(run, name)), None)


def _measured(run: "RunResult", name: str) -> list[float]:
    return [value for value in run.measured.get(name, ()) if value is not None]
