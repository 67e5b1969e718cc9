"""Benchmarks whose tasks show the same classes in other pixels: permuted and rotated."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Annotated, ClassVar, final

import numpy as np

from fopng.lab.benchmarks.base import DatasetBenchmark, check_seed, make_task, random_order
from fopng.lab.benchmarks.stream import Scenario, TaskStream
from fopng.lab.data.pixels import PixelMap
from fopng.lab.data.samples import LoadedDataset
from fopng.optim.settings import COUNT


@dataclass(frozen=True)
class PixelBenchmark(DatasetBenchmark):
    """Every task has all the classes, and moves the pixels in its own way."""

    def stream(self, data: LoadedDataset, *, seed: int, validation: bool) -> TaskStream:
        """Targets are the classes; class-incremental tasks count on where the task before ended."""
        classes, tasks = range(data.classes), []
        for number, (name, pixels) in enumerate(self.pixel_maps(data.input_shape, check_seed(seed))):
            offset = number * data.classes if self.scenario is Scenario.CLASS else 0
            targets = [offset + label for label in classes]
            tasks.append(make_task(data, name, classes=classes, targets=targets, pixels=pixels, validation=validation))
        return TaskStream(
            self.name, tuple(tasks), self.scenario, data.input_shape, self._heads(data.classes, len(tasks))
        )

    @abstractmethod
    def pixel_maps(self, shape: tuple[int, ...], seed: int) -> Iterator[tuple[str, PixelMap]]:
        """The name and the map of each task, for inputs of this shape."""

    def _heads(self, classes: int, tasks: int) -> tuple[int, ...]:
        if self.scenario is Scenario.TASK:
            return (classes,) * tasks
        return (classes * tasks,) if self.scenario is Scenario.CLASS else (classes,)


@final
@dataclass(frozen=True)
class Permuted(PixelBenchmark):
    """Each task, the first too, permutes the pixels in an order drawn from the run's seed."""

    kind: ClassVar[str] = "permuted"
    origin: ClassVar[str] = "Kirkpatrick et al. 2017"

    tasks: Annotated[int, COUNT, "how many tasks."] = 5

    def task_count(self, classes: int) -> int:
        """As many as were asked for."""
        return self.tasks

    def pixel_maps(self, shape: tuple[int, ...], seed: int) -> Iterator[tuple[str, PixelMap]]:
        """A permutation a task, of an image's pixels or of the numbers of another input.

        A longer stream of the same seed begins with the shorter one's.
        """
        pixels = prod(shape[1:] if len(shape) == 3 else shape)
        for number in range(self.tasks):
            yield f"permutation {number + 1}", PixelMap(random_order(pixels, seed, number))


@final
@dataclass(frozen=True)
class Rotated(PixelBenchmark):
    """Each task turns the images by an angle."""

    kind: ClassVar[str] = "rotated"
    origin: ClassVar[str] = "Lopez-Paz, Ranzato 2017"

    angles: Annotated[tuple[float, ...], "degrees of each task, parted by commas."] = (0.0, 10.0, 20.0, 30.0, 40.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.angles or not np.isfinite(self.angles).all():
            raise ValueError(f"Expected one angle or more in degrees, got {self.angles}.")

    def task_count(self, classes: int) -> int:
        """One an angle."""
        return len(self.angles)

    def pixel_maps(self, shape: tuple[int, ...], seed: int) -> Iterator[tuple[str, PixelMap]]:
        """A rotation an angle; the seed plays no part."""
        if len(shape) != 3:
            raise ValueError(f"Expected images [channels, height, width] for a rotated benchmark, got {shape}.")
        _, height, width = shape
        for angle in self.angles:
            yield f"{angle:g} degrees", rotation(angle, height, width)


def rotation(degrees: float, height: int, width: int) -> PixelMap:
    """Counter-clockwise about the centre, each pixel taking its nearest neighbour; black comes in from outside."""
    angle = np.deg2rad(degrees)
    row, column = np.mgrid[:height, :width]
    down, right = row - (height - 1) / 2, column - (width - 1) / 2
    # Rows count downwards, so turning a new pixel back clockwise is this rotation.
    old_row = np.floor(np.sin(angle) * right + np.cos(angle) * down + height / 2).astype(np.int64)
    old_column = np.floor(np.cos(angle) * right - np.sin(angle) * down + width / 2).astype(np.int64)
    inside = (old_row >= 0) & (old_row < height) & (old_column >= 0) & (old_column < width)
    return PixelMap(np.where(inside, old_row * width + old_column, -1).ravel())
