"""A run that is no longer numbers is marked and frozen; nobody beside it notices."""

import pytest
import torch

from fopng.lab.benchmarks import Scenario
from fopng.lab.engine.observers import RunEnded
from replicas.pairs import ONE_BY_ONE, one_by_one, plans, side_by_side
from small_runs import numbers, stream

EXPLODING = 1e30


@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize("method", ONE_BY_ONE)
def test_the_others_are_not_touched_by_a_bit(method, place, tmp_path):
    rates = [0.05, 0.02, 0.01]
    well = plans(method, range(3), settings=[{"lr": rate} for rate in rates], precision="float32")
    rates[place] = EXPLODING
    ill = plans(method, range(3), settings=[{"lr": rate} for rate in rates], precision="float32")
    expected, weights = side_by_side(well, tmp_path)
    found, others = side_by_side(ill, tmp_path)
    assert found[place].status == "diverged"
    for r in {0, 1, 2} - {place}:
        assert numbers(found[r]) == numbers(expected[r])
        assert torch.equal(others[r], weights[r])


@pytest.mark.parametrize("method", ONE_BY_ONE)
def test_what_it_leaves_is_what_it_leaves_alone(method, tmp_path):
    made = plans(method, range(2), settings=[{"lr": 0.02}, {"lr": EXPLODING}], precision="float32")
    (_, alone), _ = one_by_one(made, tmp_path)
    (_, found), _ = side_by_side(made, tmp_path)
    assert numbers(found) == numbers(alone)
    assert len(found.accuracy) == 1


def test_all_of_them(tmp_path):
    made = plans("fopng", range(2), settings=[{"lr": EXPLODING}] * 2, precision="float32")
    found, _ = side_by_side(made, tmp_path)
    assert [outcome.status for outcome in found] == ["diverged"] * 2


@pytest.mark.parametrize("method", ["fopng", "ewc", "sgd", "er", "mas"])
def test_in_the_first_task_and_with_heads_to_come(method, tmp_path):
    """The model is proven again for every new head, which must not meet weights that are no numbers."""
    tasks = stream(Scenario.TASK, tasks=3)
    rates = {0: EXPLODING, 1: 0.1}
    made = [plans(method, [r], tasks=tasks, precision="float32", first_task_lr=rates[r])[0] for r in rates]
    (ill, well), _ = side_by_side(made, tmp_path)
    (_, alone), _ = one_by_one(made, tmp_path)
    assert (ill.status, ill.accuracy) == ("diverged", [])
    assert numbers(well)["accuracy"] == numbers(alone)["accuracy"]


def test_it_is_told(tmp_path):
    told = []

    class Listener:
        def observe(self, event):
            if isinstance(event, RunEnded):
                told.append(event)

    made = plans("sgd", range(2), settings=[{"lr": 0.02}, {"lr": EXPLODING}], precision="float32")
    side_by_side(made, tmp_path, own_observers=[[], [Listener()]])
    [event] = told
    assert (event.outcome, event.task) == ("diverged", 1)
    assert event.step > 0
    assert event.words == f"diverged in task 2 by step {event.step}"


@pytest.mark.parametrize("rate", [1e5, 1e18])
@pytest.mark.parametrize("method", ONE_BY_ONE)
def test_wherever_it_is_noticed(method, rate, tmp_path):
    """In a gradient, in the weights, in a Fisher or in what is stored: both engines draw the same line."""
    settings = [{"lr": rate}, {"lr": 0.01}]
    made = plans(method, range(2), settings=settings, precision="float32", tasks=stream(tasks=2, samples=20), epochs=1)
    (alone, _), (found, _) = one_by_one(made, tmp_path), side_by_side(made, tmp_path)
    for expected, outcome in zip(alone, found, strict=True):
        assert (outcome.status, len(outcome.accuracy)) == (expected.status, len(expected.accuracy))
