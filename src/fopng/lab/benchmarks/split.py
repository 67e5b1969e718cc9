"""The benchmark whose tasks are groups of classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, final

from fopng.lab.benchmarks.base import DatasetBenchmark, check_seed, make_task, random_order
from fopng.lab.benchmarks.stream import Scenario, TaskStream
from fopng.lab.data.samples import LoadedDataset
from fopng.optim.settings import AT_LEAST_0, COUNT


@final
@dataclass(frozen=True)
class SplitByClass(DatasetBenchmark):
    """Each task has some classes of its own.

    Class-incremental targets are the classes themselves. Domain- and task-incremental ones count from 0 in each task. A
    shared head has an output for each class of the dataset in both scenarios: docs/explanation/deviations.md, Split-MNIST.
    """

    kind: ClassVar[str] = "split"
    origin: ClassVar[str] = "Zenke et al. 2017"

    classes_per_task: Annotated[int, COUNT, "classes of each task."] = 2
    tasks: Annotated[int, AT_LEAST_0, "how many tasks; 0 for as many as there are classes for."] = 0
    order: Annotated[
        tuple[int, ...], "the classes in the order they are learned, parted by commas; as numbered if none."
    ] = ()
    shuffled: Annotated[bool, "yes to draw the order of the classes from the seed."] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.order and self.shuffled:
            raise ValueError("Expected an order or shuffled classes, got both. Leave one out.")

    def task_count(self, classes: int) -> int:
        """As many as were asked for, or as the classes fill."""
        return self.tasks or len(self.order or range(classes)) // self.classes_per_task

    def stream(self, data: LoadedDataset, *, seed: int, validation: bool) -> TaskStream:
        """The groups in the order of their classes."""
        order = self._order(data.classes, check_seed(seed))
        groups = [order[start : start + self.classes_per_task] for start in range(0, len(order), self.classes_per_task)]
        tasks = tuple(
            make_task(
                data,
                _task_name([data.class_names[label] for label in group]),
                classes=group,
                targets=group if self.scenario is Scenario.CLASS else range(len(group)),
                pixels=None,
                validation=validation,
            )
            for group in groups
        )
        heads = (self.classes_per_task,) * len(tasks) if self.scenario is Scenario.TASK else (data.classes,)
        return TaskStream(self.name, tasks, self.scenario, data.input_shape, heads)

    def check(self, classes: int) -> None:
        self._order(classes, seed=0)

    def _order(self, count: int, seed: int) -> tuple[int, ...]:
        """The classes that are learned, task after task."""
        order = self.order or tuple(range(count))
        if self.shuffled:
            order = tuple(int(label) for label in random_order(count, seed, 0))
        if len(set(order)) < len(order) or not set(order) <= set(range(count)):
            raise ValueError(f"Expected an order of different classes from 0 to {count - 1}, got {self.order}.")
        needed = self.tasks * self.classes_per_task if self.tasks else len(order)
        if needed > len(order) or needed % self.classes_per_task:
            raise ValueError(
                f"Expected tasks of {self.classes_per_task} classes out of {len(order)}, got {self.tasks or 'all'}. "
                f"Choose a number of classes a task that divides {len(order)}, or fewer tasks."
            )
        return order[:needed]


def _task_name(class_names: list[str]) -> str:
    """Every class by name while they are few, else the first and the last."""
    if len(class_names) > 3:
        return f"{class_names[0]}, ..., {class_names[-1]}"
    return ", ".join(class_names)
