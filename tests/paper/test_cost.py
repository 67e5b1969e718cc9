"""How long runs will take: from runs that were done, from a measurement, from others where time is short."""

import dataclasses

import pytest

import fopng.paper.cost as cost_module
from fopng.environment import describe_environment
from fopng.paper import Cost
from fopng.paper.cost import Rate, measure, told_from
from fopng.request import Request
from fopng.result import RunResult
from fopng.runs import Workshop
from fopng.store import Store
from small_runs import CPU, plan


@pytest.fixture
def shop(tmp_path, shared_cache):
    return Workshop(store=Store(tmp_path), device=CPU)


def configs(method="sgd", seeds=3, **changes):
    return Request(benchmark="split-digits", methods=[method], seeds=range(seeds), **changes).configurations()


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
    samples = 2 * sum(len(task.train) for task in cost_module.plan_of(runs[0], None).stream)
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


@pytest.mark.parametrize("count", [1, 2])
def test_a_measurement(count):
    rate = measure([plan("fopng", seed=seed) for seed in range(count)], (10, 40), CPU)
    assert rate.start >= 0
    assert rate.a_sample > 0


def test_what_cannot_stand_side_by_side_is_measured_alone():
    assert measure([plan("joint", seed=seed) for seed in range(2)], (10, 40), CPU).a_sample > 0
