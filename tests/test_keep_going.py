"""A run that fails is told and left out, alone or in a wave; what is no run's fault still ends everything."""

import dataclasses

import pytest

import fopng.lab.schedule.batched
import fopng.lab.schedule.inline
from fopng.lab.data.errors import DataError
from fopng.lab.engine import Interrupted
from fopng.lab.runs.request import configurations
from fopng.lab.runs.store import Store
from fopng.lab.schedule.runner import Runner
from small_runs import CPU

pytestmark = pytest.mark.usefixtures("shared_cache")


@pytest.fixture
def wanted():
    return configurations(benchmark="split-digits", methods=["sgd"], seeds=range(3), epochs=1, assignments=["tasks=1"])


@pytest.fixture
def fails(monkeypatch):
    """Let the run of seed 1 fail, alone and in any company."""

    def install(error):
        train, side_by_side = fopng.lab.schedule.inline.train, fopng.lab.schedule.batched.train_replicas

        def alone(plan, **more):
            if plan.seed == 1:
                raise error
            return train(plan, **more)

        def together(plans, **more):
            if any(plan.seed == 1 for plan in plans):
                raise error
            return side_by_side(plans, **more)

        monkeypatch.setattr(fopng.lab.schedule.inline, "train", alone)
        monkeypatch.setattr(fopng.lab.schedule.batched, "train_replicas", together)

    return install


@pytest.mark.parametrize("engine", ["single", "replicas"])
def test_the_others_are_done(engine, wanted, fails, tmp_path):
    fails(RuntimeError("no such luck"))
    told = []
    shop = Runner(store=Store(tmp_path), device=CPU, engine=engine, keep_going=True, notice=told.append)
    results = shop.do(wanted)
    assert [result.config.seed for result in results] == [0, 2]
    assert told[-1] == "split-digits sgd seed 1 failed and is left out: RuntimeError: no such luck"
    assert ("They are done one by one." in told[0]) == (engine == "replicas")
    assert [config.seed for config in shop.unfinished(wanted)] == [1]


@pytest.mark.parametrize("engine", ["single", "replicas"])
def test_unless_asked_a_failure_ends_it(engine, wanted, fails, tmp_path):
    fails(RuntimeError("no such luck"))
    shop = Runner(store=Store(tmp_path), device=CPU, engine=engine)
    with pytest.raises(RuntimeError, match="no such luck"):
        shop.do(wanted)


@pytest.mark.parametrize("error", [Interrupted("stopped"), OSError("disk full"), DataError("no data")], ids=repr)
@pytest.mark.parametrize("engine", ["single", "replicas"])
def test_what_is_no_runs_fault_ends_it(engine, error, wanted, fails, tmp_path):
    fails(error)
    shop = Runner(store=Store(tmp_path), device=CPU, engine=engine, keep_going=True)
    with pytest.raises(type(error)):
        shop.do(wanted)


def test_a_diverged_run_is_a_result(wanted, tmp_path):
    shop = Runner(store=Store(tmp_path), device=CPU, keep_going=True)
    runs = [dataclasses.replace(c, first_task_lr=1e30 if c.seed == 1 else c.first_task_lr) for c in wanted]
    assert [result.status for result in shop.do(runs)] == ["finished", "diverged", "finished"]
