"""Runs that are steered by what old tasks lose: side by side as one by one, stopped and gone on with."""

import pytest

from fopng.lab.benchmarks import Scenario
from fopng.lab.engine import Interrupted, train
from fopng.lab.engine.batched import train_replicas
from fopng.lab.storage.checkpoint import Checkpoint
from replicas.pairs import assert_same_runs, fresh, plans
from small_runs import CPU, final_state, numbers, same, stream

STEERED = {"tolerance": 0.01, "strength": 10.0, "rehearse": 3.0}
METHODS = {
    "fopng-k": STEERED,
    "fopng-k, bend alone": {**STEERED, "rehearse": 0.0},
    "fopng-k, momentum": {**STEERED, "momentum": 0.5},
    "ewc": {"tolerance": 0.01},
    "fopng": {"tolerance": 0.01, "rehearse": 1.0, "damping": 0.1},
    "sgd": {"rehearse": 1.0},
}
every_method = pytest.mark.parametrize("name", METHODS)
every_stream = pytest.mark.parametrize("scenario", [Scenario.DOMAIN, Scenario.TASK])
# such short tasks end where they end
pytestmark = pytest.mark.filterwarnings("ignore::fopng.optim.tolerance.ToleranceExceeded")


def steered(name, scenario, count=2, **changes):
    """Runs of three tasks; each next one may lose twice as much."""
    own = METHODS[name]
    settings = [{**own, **({"tolerance": own["tolerance"] * 2**r} if "tolerance" in own else {})} for r in range(count)]
    return plans(name.partition(",")[0], range(count), tasks=stream(scenario, tasks=3), settings=settings, **changes)


@every_stream
@every_method
def test_side_by_side_as_one_by_one(name, scenario, tmp_path):
    assert_same_runs(steered(name, scenario), tmp_path)


@every_stream
def test_what_old_tasks_lose_is_measured(scenario):
    for outcome in train_replicas(steered("fopng-k", scenario), device=CPU):
        first, *later = outcome.measured["lost_measured"]
        assert first is None
        assert all(found > 0 for found in later)


@every_stream
@pytest.mark.parametrize("steps", [21, 33])
@pytest.mark.parametrize("name", ["fopng-k", "ewc"])
def test_stopped_anywhere_side_by_side_it_ends_with_the_same_bits(name, scenario, steps, tmp_path):
    made = steered(name, scenario, precision="float32")

    def do(checkpoint, **more):
        return train_replicas(made, device=CPU, checkpoint=checkpoint, **more)

    first, second = _whole_and_stopped(do, steps, tmp_path)
    assert same(first["runs"], second["runs"])


@every_stream
@pytest.mark.parametrize("steps", [21, 33])
@pytest.mark.parametrize("name", ["fopng-k", "ewc"])
def test_stopped_anywhere_alone_it_ends_with_the_same_bits(name, scenario, steps, tmp_path):
    [made] = steered(name, scenario, 1, precision="float32")

    def do(checkpoint, **more):
        return [train(made, device=CPU, checkpoint=checkpoint, **more)]

    first, second = _whole_and_stopped(do, steps, tmp_path)
    assert same(first["runs"], second["runs"])


def _whole_and_stopped(do, steps, folder):
    """The final states of a run that is done in one go, and of one that is stopped after so many steps; the same is measured."""
    whole, cut = (Checkpoint(fresh(folder / name)) for name in ("whole", "cut"))
    expected, asked = do(whole), iter(range(10**6))
    with pytest.raises(Interrupted):
        do(cut, should_stop=lambda: next(asked) >= steps, save_seconds=0)
    found = do(cut)
    assert [numbers(outcome) for outcome in found] == [numbers(outcome) for outcome in expected]
    return final_state(whole), final_state(cut)
