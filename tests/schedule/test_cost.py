"""How long runs will take: from runs that were done, from a measurement, from others where time is short."""

import dataclasses

import pytest

import fopng.lab.schedule.cost as cost_module
from fopng.lab.runs.environment import describe_environment
from fopng.lab.runs.request import configurations
from fopng.lab.runs.result import RunResult
from fopng.lab.runs.store import Store
from fopng.lab.schedule.cost import Cost, Rate, measure, told_from
from fopng.lab.schedule.runner import Runner
from small_runs import CPU, plan


@pytest.fixture
def shop(tmp_path, shared_cache):
    return Runner(store=Store(tmp_path), device=CPU)


def configs(method="sgd", seeds=3, **changes):
    return configurations(benchmark="split-digits", methods=[method], seeds=range(seeds), **changes)


def done(config, seconds, **environment):
    here = {**describe_environment(CPU), **environment}
    return RunResult(config=config, accuracy=((0.5,),), seconds_by_phase={"train": seconds}, environment=here)


def counted(monkeypatch, rate):
    """Have every measurement give this rate, and count them."""
    asked = []

    def fake(plans, samples, device):
        asked.append(len(plans))
        return rate

    monkeypatch.setattr(cost_module, "measure", fake)
    return asked


def test_a_wave_takes_its_start_and_its_samples(shop, monkeypatch):
    asked = counted(monkeypatch, Rate(2.0, 0.001))
    runs = configs(epochs=2)
    samples = 2 * sum(len(task.train) for task in cost_module.build(runs[0], None).stream)
    assert Cost(shop).seconds(runs) == pytest.approx(2.0 + 0.001 * samples)
    assert asked == [3]
    assert Cost(shop).seconds(runs, jobs=2) == pytest.approx((2.0 + 0.001 * samples) / 2)


def test_runs_one_by_one_are_added(shop, monkeypatch):
    asked = counted(monkeypatch, Rate(2.0, 0.0))
    assert Cost(dataclasses.replace(shop, engine="single")).seconds(configs()) == 6.0
    assert asked == [1]


def test_what_is_finished_costs_nothing(shop, monkeypatch):
    asked = counted(monkeypatch, Rate(1.0, 0.0))
    runs = configs()
    for config in runs[:2]:
        with shop.store.folder(config).claim():
            shop.store.folder(config).finish(done(config, 5.0))
    assert Cost(shop).seconds(runs) == 1.0
    assert asked == [1]
    with shop.store.folder(runs[2]).claim():
        shop.store.folder(runs[2]).finish(done(runs[2], 5.0))
    assert Cost(shop).seconds(runs) == 0.0


def test_runs_that_were_done_here_tell(shop, monkeypatch):
    asked = counted(monkeypatch, Rate(1.0, 0.0))
    known = [done(configs(seeds=9)[seed], seconds) for seed, seconds in ((7, 4.0), (8, 6.0))]
    assert Cost(shop, known).seconds(configs()) == 15.0
    assert asked == []
    elsewhere = [done(configs(seeds=9)[7], 4.0, device_name="another")]
    assert Cost(shop, elsewhere).seconds(configs()) == 1.0
    assert Cost(shop, known).seconds(configs(epochs=1)) == 1.0


def test_when_the_budget_is_spent_others_tell(shop, monkeypatch):
    asked = counted(monkeypatch, Rate(1.0, 0.5))
    cost = Cost(shop, budget=-1.0)
    both = [*configs("sgd"), *configs("ogd")]
    cost.seconds(both)
    assert asked == [3]


def test_told_from_the_other_model():
    rates = {("mlp", "sgd", 5): Rate(1, 0.1), ("mlp", "fopng", 5): Rate(1, 0.4), ("convnet", "sgd", 1): Rate(2, 3)}
    assert told_from(("convnet", "fopng", 1), rates) == Rate(8, 12)
    assert told_from(("convnet", "ewc", 1), rates) == Rate(2, 3)
    assert told_from(("other", "sgd", 1), rates) is None


def test_the_start_and_the_work_are_told_apart(monkeypatch):
    """A run that takes a second to start and 10 ms a sample."""
    monkeypatch.setattr(cost_module, "_timed", lambda plans, device: 1 + 0.01 * cost_module._samples(plans[0]))
    rate = measure([plan("fopng")], (10, 40), CPU)
    assert (rate.start, rate.a_sample) == (pytest.approx(1), pytest.approx(0.01))


@pytest.mark.parametrize(("method", "count"), [("fopng", 1), ("fopng", 2), ("joint", 2)])
def test_a_measurement_runs_alone_and_side_by_side_and_where_that_cannot_be(method, count):
    rate = measure([plan(method, seed=seed) for seed in range(count)], (10, 40), CPU)
    # On a busy machine the longer run may be the quicker one.
    assert rate.start + rate.a_sample > 0
    assert min(rate.start, rate.a_sample) >= 0


def test_a_short_run_is_the_same_but_short():
    short = cost_module._cut_short(plan("fopng"), 10)
    assert short.epochs == 1
    assert [len(task.train) for task in short.stream] == [10, 10, 10]
    assert [len(task.test) for task in short.stream] == [20, 20, 20]
