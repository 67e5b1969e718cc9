"""What a run is for the training loop, and what it measures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, final

import torch
from torch import nn

from fopng.core.batch import Predict
from fopng.lab.benchmarks.stream import TaskStream
from fopng.lab.engine.measured import Numbers
from fopng.lab.engine.precision import Precision
from fopng.optim.first_task import FirstTask
from fopng.optim.optimizer import ContinualOptimizer

Row = tuple[float | None, ...]

Part = Literal["test", "validation"]


class MakeOptimizer(Protocol):
    """Makes a method's optimizer for a model."""

    def __call__(
        self, model: nn.Module, *, first_task: FirstTask, predict: Predict, generator: torch.Generator
    ) -> ContinualOptimizer:
        """The optimizer of this model."""
        ...


@final
@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that training a run needs."""

    label: str
    """In words, such as `split-mnist fopng seed 0`."""
    stream: TaskStream
    stages: tuple[tuple[int, ...], ...]
    """The tasks that are learnt together, stage after stage: `one_by_one` or `all_at_once`."""
    make_model: Callable[[int], nn.Module]
    """From the seed of the weights to a model that takes `model(x, task=number)`."""
    make_optimizer: MakeOptimizer
    first_task_lr: float | None
    """The rate of the plain SGD that learns the first stage; None where the method learns it itself."""
    epochs: int
    batch_size: int
    seed: int
    precision: Precision = field(default_factory=Precision)
    facts: Mapping[str, object] = field(default_factory=dict)
    """The configuration, for observers."""


@final
class Evaluation(NamedTuple):
    """How a run does on each task; None for tasks that were not measured."""

    accuracy: Row
    """The share of the samples that is answered rightly."""
    lost: Row
    """The mean divergence from the answers at the task's end, in nats; None for a task that has not ended."""


@final
@dataclass(kw_only=True)
class Outcome:
    """What a run has measured so far; None for tasks that were not measured."""

    accuracy: list[Row] = field(default_factory=list)
    """Row k: on test after task k, one number per task."""
    lost: list[Row] = field(default_factory=list)
    """Row k: on test after task k, how far the answers are from those at each task's end; 0 for the task just learnt."""
    validation_accuracy: list[Row] | None = None
    validation_lost: list[Row] | None = None
    initial_accuracy: Row | None = None
    """Before any training."""
    accuracy_before: list[float | None] = field(default_factory=list)
    """On each task's test set just before it was learnt."""
    measured: Numbers = field(default_factory=dict)
    """What the method measured, by name, one number a task; None where it measured nothing."""
    seconds_by_phase: dict[str, float] = field(default_factory=dict)
    peak_memory_bytes: int | None = None
    status: Literal["finished", "diverged"] = "finished"

    def begin(self, initial: Row, *, held_out: bool) -> None:
        """Note the accuracies before any training, and whether a part of the training set is held out."""
        self.initial_accuracy = initial
        self.accuracy_before = [initial[0], *[None] * (len(initial) - 1)]
        if held_out:
            self.validation_accuracy, self.validation_lost = [], []

    def note(self, part: Part, found: Evaluation, task: int) -> None:
        """Add what was found after a task."""
        own = (self.accuracy, self.lost) if part == "test" else (self.validation_accuracy, self.validation_lost)
        for matrix, row in zip(own, found, strict=True):
            if matrix is not None:
                append_row(matrix, row, task)


def append_row(matrix: list[Row], row: Row, task: int) -> None:
    """Add the row after a task; tasks before it that were never the last one learnt, as in joint training, have none."""
    nothing: Row = (None,) * len(row)
    matrix.extend([nothing] * (task - len(matrix)))
    matrix.append(row)


def mean(row: Row) -> float:
    """The mean of what was measured."""
    measured = [value for value in row if value is not None]
    return sum(measured) / len(measured)


def mean_row(rows: Sequence[Row]) -> Row:
    """The mean over runs, task by task."""
    columns = [[value for value in column if value is not None] for column in zip(*rows, strict=True)]
    return tuple(sum(column) / len(column) if column else None for column in columns)


@final
@dataclass
class Position:
    """How far a run is."""

    stage: int = 0
    epoch: int = 0
    step: int = 0
    """Steps of the epoch."""
    done: int = 0
    """Steps of the run."""


class Interrupted(Exception):
    """Work was asked to stop; it is saved."""
