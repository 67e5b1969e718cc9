"""Steps that are captured once and replayed: nothing waits for the device, nothing that they read is replaced behind their back."""

import pytest
import torch

import fopng.lab.engine.batched.step
from fopng.lab.benchmarks import Scenario
from replicas.pairs import ONE_BY_ONE, plans, side_by_side
from replicas.recorded import Recorded
from small_runs import stream

REFRESHED = ("fng", "ong", "natural-ogd", "fopng", "fopng-prefisher", "lwf")
"""Methods that learn something new about a task in every epoch."""


@pytest.fixture
def graphs(monkeypatch):
    """The graphs that were captured."""
    made = []

    def captured(advance):
        made.append(Recorded(advance))
        return made[-1]

    monkeypatch.setattr(fopng.lab.engine.batched.step, "captured", captured)
    return made


# gem looks at its numbers on a CPU, to spare itself the program; on a GPU it does not
@pytest.mark.parametrize("method", [name for name in ONE_BY_ONE if name != "gem"])
def test_replayed_steps_are_those_that_would_have_been_taken(method, graphs, tmp_path):
    tasks = stream(Scenario.TASK, tasks=3, samples=83)
    made = plans(method, range(2), tasks=tasks, epochs=2)
    plain, taken = side_by_side(made, tmp_path, capture=False)
    assert not graphs
    replayed, found = side_by_side(made, tmp_path, capture=True)
    torch.testing.assert_close(found, taken, rtol=1e-10, atol=1e-12)
    assert [outcome.accuracy for outcome in replayed] == [outcome.accuracy for outcome in plain]
    assert [outcome.measured for outcome in replayed] == [
        {
            name: [each if each is None else pytest.approx(each) for each in row]
            for name, row in outcome.measured.items()
        }
        for outcome in plain
    ]
    # once a task, and once an epoch where the method was refreshed; the first task is plain SGD's
    assert len(graphs) == (1 + 2 * 2 if method in REFRESHED else 3)


def test_a_step_that_waits_for_the_device_is_noticed():
    with pytest.raises(AssertionError, match="waits for the device"):
        Recorded(lambda: torch.ones(1).item())


def test_a_replaced_tensor_is_noticed():
    """The stand-in behaves like a graph, or the first test could not fail."""
    first, seen = torch.ones(2), torch.zeros(2)
    held = {"x": first}
    graph = Recorded(lambda: seen.copy_(2 * held["x"]))
    held["x"] = torch.full((2,), 5.0)
    graph.replay()
    graph.replay()
    assert seen.tolist() == [2.0, 2.0]
    del first
    with pytest.raises(AssertionError, match="memory that the step reads is gone"):
        graph.replay()
