"""On a CUDA device: captured steps, plain steps and single runs give the same numbers."""

import pytest
import torch

from fopng.lab.benchmarks import Scenario
from fopng.lab.benchmarks.dropout import Dropout, DropoutKeys, dropout_key
from fopng.lab.engine.batched import Footprint, free_memory
from fopng.lab.runs.request import configurations
from fopng.lab.runs.store import Store
from fopng.lab.schedule.runner import Runner
from replicas.pairs import ONE_BY_ONE, assert_same_runs, plans, side_by_side
from small_runs import stream

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CUDA = torch.device("cuda")


@pytest.mark.parametrize("method", ONE_BY_ONE)
def test_captured_or_not(method, tmp_path):
    made = plans(method, range(3), tasks=stream(Scenario.TASK, tasks=2, samples=80))
    (first, plain), (second, captured) = (
        side_by_side(made, tmp_path, CUDA, capture=capture) for capture in (False, True)
    )
    torch.testing.assert_close(captured, plain, rtol=1e-9, atol=1e-11)
    assert [outcome.accuracy for outcome in first] == [outcome.accuracy for outcome in second]


@pytest.mark.parametrize("method", ONE_BY_ONE)
def test_equals_single_runs(method, tmp_path):
    assert_same_runs(plans(method, range(3), tasks=stream(tasks=2, samples=80)), tmp_path, device=CUDA)


def test_the_convnet_with_dropout(tmp_path):
    tasks = stream(Scenario.TASK, tasks=2, samples=80, shape=(3, 8, 8))
    made = plans("fopng", range(3), tasks=tasks, epochs=1)
    assert_same_runs(made, tmp_path, rtol=1e-7, atol=1e-9, device=CUDA)


@pytest.mark.parametrize("scenario", [Scenario.DOMAIN, Scenario.TASK])
def test_gem_asks_about_many_tasks_in_one_pass(scenario, tmp_path):
    tasks = stream(scenario, tasks=4, samples=80, shape=(3, 8, 8))
    own = {"replay_samples": 3, "margin": 0.5}
    made = plans("gem", range(3), tasks=tasks, settings=[own] * 3, epochs=1)
    assert_same_runs(made, tmp_path, rtol=1e-7, atol=1e-9, device=CUDA)


def test_masks_are_those_of_the_processor():
    x, step = torch.randn(3, 6, 40), torch.tensor(11)
    layer = Dropout(0.5, 1)

    def masks(device):
        keys = DropoutKeys([5, 6, 7], device)(step.to(device))

        def ask(key, own):
            with dropout_key(key):
                return layer(own)

        return torch.func.vmap(ask, randomness="error")(keys, x.to(device)).cpu()

    assert torch.equal(masks(CUDA), masks(torch.device("cpu")))


def test_a_run_that_diverges_hurts_nobody(tmp_path):
    tasks = stream(tasks=2, samples=80)
    well, ill = (
        plans("fopng", range(3), tasks=tasks, settings=[{"lr": rate} for rate in rates], precision="float32")
        for rates in ([0.05, 0.02, 0.01], [0.05, 1e30, 0.01])
    )
    (expected, weights), (found, others) = side_by_side(well, tmp_path, CUDA), side_by_side(ill, tmp_path, CUDA)
    assert found[1].status == "diverged"
    for r in (0, 2):
        assert found[r].accuracy == expected[r].accuracy
        torch.testing.assert_close(others[r], weights[r], rtol=1e-4, atol=1e-6)


def peak_memory(made, folder):
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    side_by_side(made, folder, CUDA)
    return torch.cuda.max_memory_allocated() - before


@pytest.mark.parametrize(("shape", "count"), [((1, 28, 28), 8), ((3, 16, 16), 4)])
def test_the_memory_is_not_underestimated(shape, count, tmp_path):
    made = plans("fopng", range(count), tasks=stream(tasks=2, samples=80, shape=shape), precision="float32", epochs=1)
    room = Footprint(made[:2], CUDA)
    assert peak_memory(made, tmp_path) < room.common + count * room.each
    assert room.count(free_memory(CUDA)) > count


def test_the_memory_of_many_old_tasks_is_not_underestimated(tmp_path):
    tasks = stream(Scenario.TASK, tasks=9, samples=20, shape=(3, 32, 32))
    own = {"samples_per_task": 20, "replay_samples": 10}
    made = plans("gem", range(3), tasks=tasks, settings=[own] * 3, precision="float32", epochs=1)
    room = Footprint(made[:2], CUDA)
    assert peak_memory(made, tmp_path) < room.common + 3 * room.each


def test_groups_that_share_the_device_take_nothing_from_each_other(tmp_path):
    wanted = configurations(
        benchmark="split-digits", methods=["sgd", "ewc", "fopng", "fopng-k"], seeds=range(3), epochs=1
    )
    alone, together = (
        Runner(store=Store(tmp_path / str(lanes)), device=CUDA, engine="replicas", jobs=lanes).do(wanted)
        for lanes in (1, 4)
    )
    assert [result.accuracy for result in together] == [result.accuracy for result in alone]


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 8, 8)])
@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_other_precisions_stand_side_by_side(precision, shape, tmp_path):
    """Captured, and not one by one because a product would not go through."""
    made = plans("fopng", range(2), tasks=stream(tasks=2, samples=80, shape=shape), precision=precision, epochs=1)
    outcomes, weights = side_by_side(made, tmp_path, CUDA)
    assert [outcome.status for outcome in outcomes] == ["finished"] * 2
    assert weights.isfinite().all()
