"""A quantity that a method measures travels by its name: one method of the reader's own, in both engines."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch

from fopng.core.tree import node
from fopng.core.vector import Vector
from fopng.lab.engine import Precision, train
from fopng.lab.engine.batched import train_replicas
from fopng.lab.engine.measured import TaskMeans
from fopng.optim.method import Method, Running, State
from fopng.optim.optimizer import ContinualOptimizer
from fopng.optim.settings import settings
from small_runs import CPU, plan, stream


@node
@dataclass(frozen=True)
class ToyState(State):
    weights: Vector | None = None


@settings
class Toy(Method[ToyState, Running]):
    """SGD that measures how long its steps are, and its weights when a task has ended."""

    state_type: ClassVar[type[State]] = ToyState

    def end_task(self, state, running, task):
        return replace(state, weights=task.parameters().clone()), running

    def measure_step(self, taken):
        return {"step_length": taken.v.norm()}

    def measure_task(self, state):
        return {"weight_length": state.weights.norm()}


def toys(seeds):
    def make(model, **more):
        return ContinualOptimizer(model, 0.05, Toy(), **more)

    return [
        plan("sgd", stream(tasks=2), seed=seed, make_optimizer=make, precision=Precision("float64")) for seed in seeds
    ]


def test_a_new_quantity_needs_its_method_alone():
    alone = [train(each, device=CPU) for each in toys(range(2))]
    together = train_replicas(toys(range(2)), device=CPU)
    for single, replica in zip(alone, together, strict=True):
        assert single.measured.keys() == replica.measured.keys() == {"step_length", "weight_length"}
        steps, weights = single.measured["step_length"], single.measured["weight_length"]
        # plain SGD learns the first task: the method takes no step there, and its end is its own
        assert steps[0] is None
        assert steps[1] > 0
        assert all(length > 0 for length in weights)
        for name, row in single.measured.items():
            assert replica.measured[name] == [each if each is None else pytest.approx(each, rel=1e-5) for each in row]


def test_means_leave_out_what_is_not_finite_and_start_anew():
    means, other = TaskMeans(), TaskMeans()
    means.add({"a": torch.tensor([1.0, math.nan]), "b": torch.tensor(2.0)})
    other.load_state_dict(means.state_dict(), CPU)
    other.add({"a": torch.tensor([2.0, math.nan])})
    assert other.take() == {"a": [1.5, None], "b": [2.0]}
    assert other.take() == {}
