import numpy as np
import pytest

from fopng.lab.benchmarks import Scenario, SplitByClass
from fopng.lab.data import LoadedDataset


def images(classes=6):
    labels = np.repeat(np.arange(classes), 20)
    inputs = np.repeat(labels[:, None], 4, axis=1).astype(np.float64)
    return LoadedDataset.from_arrays("small", train=(inputs, labels), test=(inputs[::2], labels[::2]))


def stream(*arguments, seed=0, validation=False, **settings):
    return SplitByClass("small", *arguments, **settings).stream(images(), seed=seed, validation=validation)


def targets(made):
    return [sorted(set(task.train.targets.tolist())) for task in made]


def inputs(made):
    return [sorted(set(task.train.tensors()[0][:, 0].int().tolist())) for task in made]


@pytest.mark.parametrize(
    ("scenario", "expected", "heads"),
    [
        (Scenario.DOMAIN, [[0, 1], [0, 1], [0, 1]], (6,)),
        (Scenario.TASK, [[0, 1], [0, 1], [0, 1]], (2, 2, 2)),
        (Scenario.CLASS, [[0, 1], [2, 3], [4, 5]], (6,)),
    ],
)
def test_scenarios(scenario, expected, heads):
    made = stream(scenario)
    assert targets(made) == expected
    assert inputs(made) == [[0, 1], [2, 3], [4, 5]]
    assert made.heads == heads
    assert [task.classes for task in made] == [(0, 1), (2, 3), (4, 5)]


def test_inputs_and_targets_belong_together():
    for task in stream(Scenario.CLASS):
        x, y = task.test.tensors()
        assert x[:, 0].int().tolist() == y.tolist()


def test_order():
    made = stream(Scenario.TASK, order=(5, 0, 3, 1, 2, 4))
    assert [task.classes for task in made] == [(5, 0), (3, 1), (2, 4)]
    x, y = made[0].train.tensors()
    assert y[x[:, 0] == 5].unique().tolist() == [0]


def test_a_part_of_the_classes():
    assert inputs(stream(order=(5, 1))) == [[1, 5]]
    assert inputs(stream(tasks=2)) == [[0, 1], [2, 3]]
    assert inputs(stream(classes_per_task=3, tasks=1)) == [[0, 1, 2]]


def test_shuffled_by_the_seed():
    orders = {tuple(task.classes for task in stream(shuffled=True, seed=seed)) for seed in range(20)}
    assert len(orders) > 15
    assert stream(shuffled=True, seed=4)[0].classes == stream(shuffled=True, seed=4)[0].classes


def test_validation_is_held_back_of_every_class():
    for task in stream(Scenario.CLASS, validation=True):
        assert len(task.train) == 36
        assert task.validation.targets.tolist() == [task.classes[0]] * 2 + [task.classes[1]] * 2


def test_names():
    assert stream()[1].name == "2, 3"
    assert stream(classes_per_task=6)[0].name == "0, ..., 5"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"classes_per_task": 4}, "tasks of 4 classes out of 6, got all"),
        ({"tasks": 4}, "tasks of 2 classes out of 6, got 4"),
        ({"order": (0, 0)}, "different classes from 0 to 5"),
        ({"order": (0, 6)}, "different classes from 0 to 5"),
        ({"classes_per_task": 0}, "Expected classes_per_task of at least 1"),
        ({"tasks": -1}, "Expected tasks of at least 0"),
        ({"order": (0, 1), "shuffled": True}, "got both"),
    ],
)
def test_settings_are_checked(settings, problem):
    with pytest.raises(ValueError, match=problem):
        stream(**settings)
