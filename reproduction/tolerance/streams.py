"""The eight streams: the paper's five in short forms, a long one, one of short tasks, and texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from fopng.lab.benchmarks import DatasetBenchmark, Scenario
from fopng.lab.benchmarks.pixels import Permuted, Rotated
from fopng.lab.benchmarks.split import SplitByClass
from fopng.lab.benchmarks.stream import TaskStream
from fopng.lab.data.samples import LoadedDataset
from reproduction.tolerance.portions import digest, first_of_each_class, portion


@final
@dataclass(frozen=True, kw_only=True)
class ImageStream:
    """A benchmark with few samples and epochs.

    Attributes:
        title: what it is called in tables.
        benchmark: how tasks are made.
        samples: of each class, to learn from.
        epochs: of each task.
        batch_size: samples a step.
        lr: of every contender, and of the SGD that learns the first task.
    """

    title: str
    benchmark: DatasetBenchmark
    samples: int
    epochs: int
    batch_size: int
    lr: float

    def data(self, folder: Path | None) -> LoadedDataset:
        """The samples; `folder` may hold the datasets."""
        found = portion(self.benchmark.dataset, folder)
        train = first_of_each_class(found.train, self.samples)
        return LoadedDataset(found.name, train, found.test, found.class_names, found.scaling)

    def tasks(self, data: LoadedDataset, seed: int) -> TaskStream:
        """The tasks of a seed."""
        return self.benchmark.stream(data, seed=seed, validation=False)

    def facts(self, data: LoadedDataset) -> dict[str, object]:
        """What results say of the data."""
        sizes = {"train_samples": len(data.train.labels), "test_samples": len(data.test.labels)}
        return {"dataset": data.name, **sizes, "sha256": digest(data)}


@final
@dataclass(frozen=True, kw_only=True)
class TextStream:
    """Python's sources, then C headers, then English, a byte at a time.

    Attributes:
        title: what it is called in tables.
        length: bytes of a sample.
        batch_size: samples a step.
        first_steps: of AdamW, on Python.
        first_batch_size: samples of each.
        first_lr: its largest rate.
        steps: of the method, on each of the others.
        lr: its rate, of every contender: the one at which plain training learns C best.
        momentum: likewise.
        tested: samples of each corpus that losses are measured on.
    """

    title: str
    length: int = 128
    batch_size: int = 8
    first_steps: int = 1500
    first_batch_size: int = 16
    first_lr: float = 2e-3
    steps: int = 400
    lr: float = 0.03
    momentum: float = 0.9
    tested: int = 128


STREAMS: Mapping[str, ImageStream | TextStream] = {
    "split-mnist": ImageStream(
        title="Split-MNIST", benchmark=SplitByClass("mnist"), samples=2400, epochs=2, batch_size=10, lr=0.05
    ),
    "rotated-mnist": ImageStream(
        title="Rotated-MNIST", benchmark=Rotated("mnist"), samples=600, epochs=2, batch_size=10, lr=0.05
    ),
    "permuted-mnist": ImageStream(
        title="Permuted-MNIST", benchmark=Permuted("mnist"), samples=600, epochs=2, batch_size=10, lr=0.05
    ),
    "split-cifar10": ImageStream(
        title="Split-CIFAR10, 16 x 16",
        benchmark=SplitByClass("cifar10", Scenario.TASK),
        samples=2000,
        epochs=2,
        batch_size=20,
        lr=0.05,
    ),
    "split-cifar100": ImageStream(
        title="Split-CIFAR100, 16 x 16",
        benchmark=SplitByClass("cifar100", Scenario.TASK, classes_per_task=10),
        samples=400,
        epochs=3,
        batch_size=20,
        lr=0.05,
    ),
    "permuted-20": ImageStream(
        title="20 permuted tasks", benchmark=Permuted("mnist", tasks=20), samples=600, epochs=1, batch_size=10, lr=0.05
    ),
    "short-mnist": ImageStream(
        title="Short tasks", benchmark=SplitByClass("mnist"), samples=400, epochs=3, batch_size=10, lr=0.05
    ),
    "texts": TextStream(title="Python, C, English"),
}
"""By name, in the order of the table."""
