"""A task, and the stream of tasks that a model meets one after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from torch.utils.data import Dataset

from fopng.lab.choices import Scenario as Scenario
from fopng.lab.data.pixels import Scaling
from fopng.lab.data.samples import ArrayLike, Samples
from fopng.lab.data.splits import ArraySplit, DatasetSplit, Split

Source: TypeAlias = Split | Dataset[Any] | tuple[ArrayLike, ArrayLike]


@final
@dataclass(frozen=True, eq=False)
class Task:
    """Samples to learn from and to be tested on.

    Attributes:
        name: what it is called in tables.
        classes: the classes of the dataset that it is made of.
        train: what it is trained on.
        validation: held back from training to select settings on; None when all is trained on.
        test: what it is tested on.
    """

    name: str
    classes: tuple[int, ...]
    train: Split
    validation: Split | None
    test: Split

    @classmethod
    def of(cls, name: str, *, train: Source, test: Source, validation: Source | None = None) -> Task:
        """From (inputs, targets) in NumPy or torch, from any torch Dataset, or from splits."""
        training = as_split(train)
        held_back = None if validation is None else as_split(validation)
        return cls(name, _classes(training), training, held_back, as_split(test))

    @property
    def splits(self) -> tuple[Split, ...]:
        """The splits that there are: train, test, and validation if any."""
        return (self.train, self.test) if self.validation is None else (self.train, self.test, self.validation)


@final
@dataclass(frozen=True, eq=False)
class TaskStream:
    """Tasks in the order they are learned.

    Attributes:
        name: what it is called in tables.
        tasks: the tasks.
        scenario: what the model is told, and what targets mean.
        input_shape: shape of one input.
        heads: outputs of each head: one number for a shared head, or one a task for separate heads.
    """

    name: str
    tasks: tuple[Task, ...]
    scenario: Scenario
    input_shape: tuple[int, ...]
    heads: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.tasks:
            raise ValueError(f"Expected at least one task in the stream {self.name!r}, got none.")
        expected = 1 if self.shared_head else len(self.tasks)
        if len(self.heads) != expected:
            raise ValueError(
                f"Expected {expected} heads for a {self.scenario}-incremental stream, got {len(self.heads)}."
            )
        for task in self.tasks:
            for split in task.splits:
                if split.input_shape != self.input_shape:
                    raise ValueError(
                        f"Expected inputs {self.input_shape} in task {task.name!r}, got {split.input_shape}."
                    )

    @classmethod
    def of(cls, name: str, tasks: Sequence[Task], scenario: Scenario) -> TaskStream:
        """A stream of anyone's tasks; the heads are as wide as the largest target asks."""
        widths = [max(int(split.targets.max()) + 1 for split in task.splits) for task in tasks]
        heads = tuple(widths) if scenario is Scenario.TASK else (max(widths, default=0),)
        return cls(name, tuple(tasks), scenario, tasks[0].train.input_shape if tasks else (), heads)

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def __getitem__(self, number: int) -> Task:
        return self.tasks[number]

    @property
    def shared_head(self) -> bool:
        """Whether all tasks share one head."""
        return self.scenario is not Scenario.TASK

    @property
    def outputs(self) -> int:
        """Outputs of the shared head, or of the widest separate one."""
        return max(self.heads)


def as_split(source: Source) -> Split:
    """A split from whatever holds samples; bytes are scaled to [0, 1], other numbers taken as they are."""
    if isinstance(source, Split):
        return source
    if isinstance(source, Dataset):
        return DatasetSplit(source)
    if not isinstance(source, tuple) or len(source) != 2:
        raise TypeError(f"Expected a Split, a torch Dataset or (inputs, targets), got {type(source).__name__}.")
    samples = Samples.of(*source)
    scaling = Scaling(255) if samples.inputs.dtype == np.uint8 else None
    return ArraySplit(samples.inputs, samples.labels, scaling=scaling)


def _classes(split: Split) -> tuple[int, ...]:
    return tuple(int(label) for label in np.unique(split.targets.numpy()))
