import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from fopng.lab.benchmarks import Scenario, Task, TaskStream


def pair(samples=10, classes=3, shape=(4,)):
    return torch.zeros(samples, *shape), torch.arange(samples) % classes


def test_tasks_from_arrays_tensors_and_datasets():
    arrays = Task.of("arrays", train=(np.zeros((10, 4)), np.arange(10) % 3), test=pair())
    datasets = Task.of("datasets", train=TensorDataset(*pair()), test=TensorDataset(*pair()), validation=pair(5))
    splits = Task.of("splits", train=arrays.train, test=arrays.test)
    assert [task.classes for task in (arrays, datasets, splits)] == [(0, 1, 2)] * 3
    stream = TaskStream.of("mine", [arrays, datasets, splits], Scenario.DOMAIN)
    assert stream.heads == (3,)
    assert stream.input_shape == (4,)
    assert len(stream) == 3
    assert [task.name for task in stream] == ["arrays", "datasets", "splits"]


def test_bytes_are_scaled():
    task = Task.of("bytes", train=(np.full((2, 3, 3), 255, np.uint8), np.array([0, 1])), test=pair(shape=(1, 3, 3)))
    x, _ = task.train.tensors()
    assert x.shape == (2, 1, 3, 3)
    assert x.max() == 1


def test_heads_of_several_widths():
    tasks = [Task.of(str(n), train=pair(classes=n), test=pair(classes=n)) for n in (2, 5, 3)]
    separate = TaskStream.of("mine", tasks, Scenario.TASK)
    assert separate.heads == (2, 5, 3)
    assert separate.outputs == 5
    assert TaskStream.of("mine", tasks, Scenario.CLASS).heads == (5,)


def test_the_widest_target_may_be_in_test():
    task = Task.of("x", train=pair(classes=2), test=pair(classes=4))
    assert TaskStream.of("mine", [task], Scenario.DOMAIN).heads == (4,)


@pytest.mark.parametrize(
    ("make", "error", "problem"),
    [
        (lambda: TaskStream.of("mine", [], Scenario.DOMAIN), ValueError, "at least one task"),
        (lambda: Task.of("x", train=[1, 2], test=pair()), TypeError, "a torch Dataset or"),
        (
            lambda: TaskStream.of(
                "mine",
                [Task.of("a", train=pair(), test=pair()), Task.of("b", train=pair(shape=(5,)), test=pair(shape=(5,)))],
                Scenario.DOMAIN,
            ),
            ValueError,
            r"Expected inputs \(4,\) in task 'b', got \(5,\)",
        ),
        (
            lambda: TaskStream("mine", (Task.of("a", train=pair(), test=pair()),), Scenario.TASK, (4,), (3, 3)),
            ValueError,
            "Expected 1 heads for a task-incremental stream, got 2",
        ),
    ],
)
def test_streams_are_checked(make, error, problem):
    with pytest.raises(error, match=problem):
        make()
