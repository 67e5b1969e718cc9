"""One runner: results are read once, failures are told and left out, leftovers of killed processes go."""

import dataclasses
import time

import pytest

import fopng.lab.runs.store
import fopng.lab.schedule.batched
import fopng.lab.schedule.inline
from fopng.lab.data.errors import DataError
from fopng.lab.engine import Interrupted
from fopng.lab.runs.request import configurations
from fopng.lab.runs.result import read_result
from fopng.lab.runs.store import Store
from fopng.lab.schedule.groups import LEFT_SECONDS, GroupFolder
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


@pytest.fixture
def reads(monkeypatch):
    """The files of results that are parsed."""
    found = []

    def read(path):
        result = read_result(path)
        found.append(path.parent.name)
        return result

    monkeypatch.setattr(fopng.lab.runs.store, "read_result", read)
    return found


class TestReading:
    def test_a_command_with_nothing_to_do_reads_each_result_once(self, command_line, reads, tmp_path):
        command = ("run", "split-digits", "sgd", "--seeds", "3", "--epochs", "1", "--out", str(tmp_path))
        assert command_line(*command)[0] == 0
        assert reads == []
        assert command_line(*command)[0] == 0
        assert sorted(reads) == sorted(path.parent.name for path in tmp_path.rglob("result.json"))
        assert len(reads) == 3

    def test_plans_are_built_only_for_runs_that_are_done(self, wanted, tmp_path, monkeypatch):
        built, build = [], fopng.lab.schedule.inline.build

        def note(config, data_dir):
            built.append(config.seed)
            return build(config, data_dir)

        monkeypatch.setattr(fopng.lab.schedule.inline, "build", note)
        monkeypatch.setattr(fopng.lab.schedule.batched, "build", note)
        runner = Runner(store=Store(tmp_path), device=CPU)
        runner.do(wanted[:2])
        built.clear()
        runner.do(wanted)
        assert built == [2]


class TestExperiments:
    def test_a_finished_run_gets_the_name_of_what_asks_for_it_next(self, wanted, tmp_path):
        runner = Runner(store=Store(tmp_path), device=CPU)
        assert {result.experiments for result in runner.do(wanted[:1])} == {("comparison",)}
        first, second = runner.do(wanted[:2], "sweep/mine")
        assert (first.experiments, second.experiments) == (("comparison", "sweep/mine"), ("sweep/mine",))
        assert [runner.result(config) for config in wanted[:2]] == [first, second]


class TestLeftovers:
    @pytest.fixture
    def runner(self, wanted, tmp_path):
        runner = Runner(store=Store(tmp_path), device=CPU)
        runner.do(wanted)
        return runner

    def left(self, runner):
        names = (path.name for path in runner.store.root.rglob("*"))
        return [name for name in names if name.startswith(("checkpoint", "group-", "lock"))]

    def test_of_a_kill_between_the_result_and_the_removal_of_its_checkpoint(self, runner, wanted):
        runner.store.folder(wanted[0]).checkpoint.save({"step": 1})
        group = GroupFolder.of(runner.store, wanted)
        group.begin()
        group.checkpoint.save({"step": 1})
        assert self.left(runner)
        runner.do(wanted)
        assert self.left(runner) == []

    def test_not_of_a_run_that_another_process_is_doing_again(self, runner, wanted):
        folder = runner.store.folder(wanted[0])
        with folder.claim():
            folder.checkpoint.save({"step": 1})
            runner.do(wanted)
            assert folder.checkpoint.exists()

    def test_of_a_kill_while_a_group_was_begun_or_removed(self, runner, wanted, monkeypatch):
        path = GroupFolder.of(runner.store, wanted).path
        path.mkdir()
        (path / ".group.json.0a1b2c3d.partial").write_text("half")
        runner.do(wanted)
        assert self.left(runner), "it may be one that another process begins just now"
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + LEFT_SECONDS + 1)
        runner.do(wanted)
        assert self.left(runner) == []

    def test_not_of_a_group_that_is_unfinished(self, runner, wanted):
        group = GroupFolder.of(runner.store, wanted)
        group.begin()
        (runner.store.folder(wanted[1]).path / "result.json").unlink()
        runner.do(wanted[:1])
        assert group.path.exists()


def test_again_forgets_what_was_saved(wanted, tmp_path):
    runner = Runner(store=Store(tmp_path), device=CPU, engine="single")
    steps = iter(range(10**6))
    with pytest.raises(Interrupted):
        dataclasses.replace(runner, should_stop=lambda: next(steps) >= 20).do(wanted[:1])
    starts = []

    class Notes:
        def observe(self, event):
            starts.extend([event.done] if hasattr(event, "done") else [])

    runner = dataclasses.replace(runner, observers=[Notes()])
    first = runner.do(wanted[:1])
    again = runner.do(wanted[:1], again=True)
    assert starts[0] > 0
    assert starts[1:] == [0]
    assert again[0].accuracy == first[0].accuracy


@pytest.mark.parametrize("changes", [{"engine": "single"}, {"jobs": 2}], ids=str)
def test_an_interrupted_again_keeps_the_results_of_runs_that_did_not_begin(wanted, tmp_path, changes):
    runner = Runner(store=Store(tmp_path), device=CPU, **changes)
    first = runner.do(wanted)
    with pytest.raises(Interrupted):
        dataclasses.replace(runner, should_stop=lambda: True).do(wanted, again=True)
    kept = [runner.store.folder(config).result() for config in wanted]
    assert any(result is not None for result in kept)
    assert [result.accuracy for result in runner.do(wanted)] == [result.accuracy for result in first]
