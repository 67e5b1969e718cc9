"""How long runs will take: from runs that were done, from a measurement, from others where time is short."""

import dataclasses

import pytest

import fopng.lab.schedule.forecast as module
from fopng.lab.runs.environment import describe_environment
from fopng.lab.runs.request import configurations
from fopng.lab.runs.result import RunResult
from fopng.lab.runs.store import Store
from fopng.lab.schedule.forecast import Forecast, measure, rate_from
from fopng.lab.schedule.runner import Runner
from small_runs import CPU, plan


@pytest.fixture
def runner(tmp_path, shared_cache):
    return Runner(store=Store(tmp_path), device=CPU)


def configs(method="sgd", seeds=3, **changes):
    return configurations(benchmark="split-digits", methods=[method], seeds=range(seeds), **changes)


def done(config, seconds, **environment):
    here = {**describe_environment(CPU), **environment}
    return RunResult(config=config, accuracy=((0.5,),), seconds_by_phase={"train": seconds}, environment=here)


@pytest.fixture
def asked(monkeypatch):
    """Every measurement finds 2 seconds a sample; the sizes of the groups that were measured."""
    sizes = []

    def fake(plans, device):
        sizes.append(len(plans))
        return 2.0

    monkeypatch.setattr(module, "measure", fake)
    return sizes


def samples():
    return sum(len(task.train) for task in module.build(configs()[0], None).stream)


def test_a_group_takes_its_samples_once(runner, asked):
    assert Forecast(runner).seconds(configs(epochs=3)) == pytest.approx(2.0 * 3 * samples())
    assert Forecast(dataclasses.replace(runner, jobs=2)).seconds(configs(epochs=1)) == pytest.approx(samples())
    assert Forecast(runner).seconds([]) == 0.0
    assert asked == [3, 3]


def test_runs_one_by_one_are_added_and_measured_once(runner, asked):
    alone = dataclasses.replace(runner, engine="single")
    assert Forecast(alone).seconds(configs(epochs=1)) == pytest.approx(3 * 2.0 * samples())
    assert asked == [1]


def test_runs_that_were_done_here_tell(runner, asked):
    known = [done(config, seconds) for config, seconds in zip(configs(seeds=9)[7:], (4.0, 6.0), strict=True)]
    assert Forecast(runner, known).seconds(configs()) == 15.0
    assert asked == []
    elsewhere = [done(configs(seeds=9)[7], 4.0, device_name="another")]
    for found, asked_for in ((elsewhere, configs()), (known, configs(epochs=1))):
        Forecast(runner, found).seconds(asked_for)
    assert asked == [3, 3]


def test_when_the_budget_is_spent_others_tell(runner, asked):
    Forecast(runner, budget=-1.0).seconds([*configs("sgd"), *configs("ogd")])
    assert asked == [3]


def test_a_rate_follows_from_the_other_model():
    rates = {("mlp", "sgd", 5): 0.1, ("mlp", "fopng", 5): 0.4, ("convnet", "sgd", 1): 3.0}
    assert rate_from(("convnet", "fopng", 1), rates) == pytest.approx(12.0)
    assert rate_from(("convnet", "ewc", 1), rates) == 3.0
    assert rate_from(("other", "sgd", 1), rates) is None


def test_the_start_is_left_out(monkeypatch):
    """A run that takes a second to start and 10 ms a sample."""
    monkeypatch.setattr(module, "_timed", lambda plans, device: 1 + 0.01 * module._samples(plans[0].stream))
    monkeypatch.setattr(module, "FEW", 10)
    monkeypatch.setattr(module, "MANY", 40)
    assert measure([plan("fopng")], CPU) == pytest.approx(0.01)


@pytest.mark.parametrize(("method", "count"), [("fopng", 1), ("fopng", 2), ("joint", 2)])
def test_a_measurement_of_one_run_of_a_group_and_of_what_is_no_group(method, count):
    assert measure([plan(method, seed=seed) for seed in range(count)], CPU) > 0


def test_a_short_run_is_the_same_but_short():
    short = module._cut(plan("fopng"), 10)
    assert short.epochs == 1
    assert [(len(task.train), len(task.test)) for task in short.stream] == [(10, 20)] * 3
