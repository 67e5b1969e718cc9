"""What a benchmark is: settings that, with a seed, become a stream of tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from fopng.lab.benchmarks.stream import Scenario, Task, TaskStream
from fopng.lab.data.holdout import last_of_each_class
from fopng.lab.data.pixels import PixelMap
from fopng.lab.data.samples import LoadedDataset, Samples, load
from fopng.lab.data.splits import ArraySplit
from fopng.optim.settings import SettingInfo, settings_of

VALIDATION_SHARE = 10  # the last tenth of each class; docs/explanation/deviations.md, selection


class Benchmark(ABC):
    """A frozen dataclass of settings; equal settings, seed and data give equal tasks."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What a user types."""

    @abstractmethod
    def build(self, *, seed: int, validation: bool, data_dir: Path | None = None) -> TaskStream:
        """The stream of tasks.

        Args:
            seed: the run's seed, from which permutations and shuffled orders are drawn.
            validation: hold back the last tenth of each class (to select on), or train on everything (final runs).
            data_dir: where to look for the dataset first.
        """


@dataclass(frozen=True)
class DatasetBenchmark(Benchmark):
    """Tasks made from one dataset."""

    kind: ClassVar[str]
    origin: ClassVar[str]

    dataset: Annotated[str, "its name, a folder of images, or module:function."]
    scenario: Annotated[Scenario, "what a model is told about the task."] = Scenario.DOMAIN

    def __post_init__(self) -> None:
        for name, setting in settable(self).items():
            setting.check(vars(self)[name])

    @property
    def name(self) -> str:
        """Kind and dataset: permuted-mnist."""
        return f"{self.kind}-{self.dataset}"

    def build(self, *, seed: int, validation: bool, data_dir: Path | None = None) -> TaskStream:
        """The stream of tasks over the dataset of that name."""
        return self.stream(load(self.dataset, data_dir), seed=seed, validation=validation)

    @abstractmethod
    def task_count(self, classes: int) -> int:
        """How many tasks a dataset of so many classes makes."""

    def check(self, classes: int) -> None:
        """Raise where a dataset of so many classes cannot make these tasks."""
        return

    @abstractmethod
    def stream(self, data: LoadedDataset, *, seed: int, validation: bool) -> TaskStream:
        """The stream of tasks over this dataset."""


def settable(benchmark: Benchmark) -> Mapping[str, SettingInfo]:
    """The settings of its own that a benchmark has, by name: whatever shapes its tasks beside dataset and scenario."""
    own = settings_of(type(benchmark)) if isinstance(benchmark, DatasetBenchmark) else {}
    return {name: info for name, info in own.items() if name not in ("dataset", "scenario")}


def make_task(
    data: LoadedDataset,
    name: str,
    *,
    classes: Sequence[int],
    targets: Sequence[int],
    pixels: PixelMap | None,
    validation: bool,
) -> Task:
    """A task of some classes of a dataset.

    Args:
        data: the dataset.
        name: what the task is called.
        classes: the classes it is made of.
        targets: the target that stands for each of them.
        pixels: how its pixels are moved about.
        validation: whether the last tenth of each class is held back.
    """
    target_of = np.full(data.classes, -1)
    target_of[list(classes)] = targets

    def split(samples: Samples, chosen: NDArray[np.bool_]) -> ArraySplit:
        rows = np.flatnonzero(chosen)
        labels = target_of[samples.labels[rows]]
        return ArraySplit(samples.inputs, labels, rows=rows, pixels=pixels, scaling=data.scaling)

    train = target_of[data.train.labels] >= 0
    held_back = train & last_of_each_class(data.train.labels, VALIDATION_SHARE)
    if validation:
        _check_held_back(data, classes, held_back)
    return Task(
        name,
        tuple(classes),
        train=split(data.train, train & ~held_back if validation else train),
        validation=split(data.train, held_back) if validation else None,
        test=split(data.test, target_of[data.test.labels] >= 0),
    )


def check_seed(seed: int) -> int:
    """The seed, if it is one."""
    if seed < 0:
        raise ValueError(f"Expected a seed of 0 or more, got {seed}.")
    return seed


def random_order(size: int, seed: int, number: int) -> NDArray[np.int64]:
    """A permutation of `size` numbers that depends on the seed and the task's number alone.

    Sorting raw 64-bit draws: NumPy promises the raw stream for ever, and neither it nor torch promises their shuffles.
    """
    draws = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(number,))).random_raw(size)
    return np.argsort(draws, kind="stable")


def _check_held_back(data: LoadedDataset, classes: Sequence[int], held_back: NDArray[np.bool_]) -> None:
    for label in classes:
        if not held_back[data.train.labels == label].any():
            count = int((data.train.labels == label).sum())
            raise ValueError(
                f"Expected {VALIDATION_SHARE} training samples or more of class {label} of {data.name} to hold back "
                f"a validation set, got {count}. Build the stream without validation."
            )
