"""What is submitted to Ray, what comes back and what becomes of it, with accidents that are chosen."""

import pytest
import torch

import fopng.lab.schedule.batched
import fopng.lab.schedule.inline
import fopng.lab.schedule.ray as scheduling
from fopng.lab.data.errors import DataError
from fopng.lab.engine import Interrupted
from fopng.lab.engine.observers import read_log
from fopng.lab.runs.request import configurations
from fopng.lab.runs.store import Store
from fopng.lab.schedule.errors import ClusterError, FailedRunsError
from fopng.lab.schedule.groups import GroupFolder
from fopng.lab.schedule.ray_cluster import MARKER, check_shared, mark
from fopng.lab.schedule.ray_machines import PROCESS_BYTES, Machines
from fopng.lab.schedule.runner import Runner
from fopng.lab.schedule.view import View
from schedule.fake_ray import FakeRay, WorkerCrashedError, is_lost, runs_out_of_memory
from small_runs import CPU

pytestmark = pytest.mark.usefixtures("shared_cache")


def configs(method="fopng", seeds=4, **changes):
    words = {"benchmark": "split-digits", "epochs": 1, "batch_size": 32, "assignments": ["tasks=2"], **changes}
    return configurations(methods=[method], seeds=range(seeds), **words)


def measured(results):
    names = ("config", "accuracy", "initial_accuracy", "accuracy_before", "status")
    return [{name: getattr(result, name) for name in names} for result in results]


@pytest.fixture(scope="module")
def expected(tmp_path_factory, session_cache):
    """The same runs in this process, without Ray."""
    runner = Runner(store=Store(tmp_path_factory.mktemp("local")), device=CPU)
    return lambda wanted: measured(runner.do(wanted))


class Tallies(View):
    def __init__(self):
        self.seen = []

    def tally(self, tally):
        self.seen.append(tally)


@pytest.fixture
def do(tmp_path, monkeypatch):
    """Do runs with a cluster; what was said is in `told`, the tallies in `tallies`."""
    monkeypatch.setattr(scheduling, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(scheduling, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(scheduling, "check_shared_everywhere", lambda *arguments: None)
    monkeypatch.chdir(tmp_path)

    def do(ray, wanted, *, again=False, **changes):
        monkeypatch.setattr(scheduling, "connect", lambda address: ray)
        do.told, do.tallies = [], Tallies()
        words = {"keep_going": True, "notice": do.told.append, "view": do.tallies, **changes}
        return Runner(store=Store(tmp_path / "runs"), device=CPU, engine="ray", **words).do(wanted, again=again)

    return do


def poison(monkeypatch, error, seed=1):
    """Let the runs of a seed raise, alone and in a group."""
    train, train_group = fopng.lab.schedule.inline.train, fopng.lab.schedule.batched.train_replicas

    def alone(plan, **more):
        if plan.seed == seed:
            raise error
        return train(plan, **more)

    def together(plans, **more):
        if any(plan.seed == seed for plan in plans):
            raise error
        return train_group(plans, **more)

    monkeypatch.setattr(fopng.lab.schedule.inline, "train", alone)
    monkeypatch.setattr(fopng.lab.schedule.batched, "train_replicas", together)


def lost_after(steps):
    """The worker saves after every step, and is gone after so many."""

    class Gone(BaseException):
        pass

    def accident(task):
        asked = iter(range(10**6))

        def should_stop(self):
            if next(asked) >= steps:
                raise Gone
            return False

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scheduling.StopSignals, "__call__", should_stop)
            with pytest.raises(Gone):
                task.do()
        raise WorkerCrashedError("gone")

    return accident


def starts(folder):
    return [line["done"] for line in read_log(folder.log) if line["event"] == "run started"]


KEPT = ("config.json", "result.json", "log.jsonl", MARKER)


def leftovers(root):
    return [path.name for path in root.rglob("*") if path.is_file() and path.name not in KEPT]


class TestDone:
    def test_the_same_results_as_without_ray(self, do, expected, tmp_path):
        wanted = [*configs(), *configs("ewc", seeds=3), *configs("joint", seeds=2)]
        assert measured(do(FakeRay(), wanted)) == expected(wanted)
        assert leftovers(tmp_path / "runs") == []

    def test_groups_fill_the_machines(self, do):
        ray = FakeRay(machines=3)
        do(ray, configs(seeds=7))
        assert ray.sizes() == [3, 2, 2]

    def test_what_is_done_is_not_done_again_unless_asked(self, do):
        wanted, idle, busy = configs(seeds=2), FakeRay(), FakeRay()
        first = do(FakeRay(), wanted)
        assert do(idle, wanted) == first
        assert idle.submitted == []
        assert measured(do(busy, wanted, again=True)) == measured(first)
        assert sum(busy.sizes()) == 2

    def test_the_tally(self, do):
        do(FakeRay(), configs())
        last = do.tallies.seen[-1]
        assert (last.done, last.running, last.waiting, last.failed) == (2, 0, 0, 0)
        assert (last.runs, last.runs_done, last.progress) == (4, 4, 4)

    def test_a_run_that_another_process_does_is_waited_for(self, do, expected, tmp_path):
        wanted = configs(seeds=2)
        claim = Store(tmp_path / "runs").folder(wanted[1]).claim()
        claim.__enter__()

        def lets_go(task):
            claim.__exit__(None, None, None)
            return task.do()

        ray = FakeRay([None, None, None, lets_go])
        assert measured(do(ray, wanted)) == expected(wanted)
        assert len(ray.submitted) > 3
        assert sum("is being done elsewhere" in sentence for sentence in do.told) == 1


def machines(ray, **more):
    return Machines(ray, **{"threads": 1, "gpus": None, "data_dir": None, **more})


class TestMachines:
    def test_what_tasks_need_is_stated(self, do):
        ray = FakeRay()
        do(ray, configs(seeds=2))
        for task in ray.submitted:
            assert (task.options["num_cpus"], task.options["num_gpus"]) == (1, 0)
            assert task.options["memory"] > PROCESS_BYTES["cpu"]

    def test_more_runs_need_more(self):
        wanted, found = configs(), machines(FakeRay(), threads=3)
        one, four = found.needs(wanted[:1]), found.needs(wanted)
        assert one["memory"] < four["memory"] < 4 * one["memory"]
        assert one["num_cpus"] == 3

    @pytest.mark.parametrize(("gpus", "asked", "device"), [(1, None, "cuda"), (1, False, "cpu"), (0, True, "cuda")])
    def test_the_device_is_the_clusters(self, gpus, asked, device):
        found = machines(FakeRay(gpus=gpus), gpus=asked)
        assert found.device == torch.device(device)
        assert found.needs(configs())["num_gpus"] == (device == "cuda")

    def test_groups_fit_into_the_largest_machine(self, do):
        wanted = configs()
        ray = FakeRay(machines=1, memory=machines(FakeRay()).needs(wanted[:2])["memory"])
        do(ray, wanted)
        assert ray.sizes() == [2, 2]


class TestLosses:
    def test_a_lost_group_is_submitted_again(self, do, expected):
        ray = FakeRay([is_lost])
        wanted = configs()
        assert measured(do(ray, wanted)) == expected(wanted)
        assert ray.sizes() == [2, 2, 2]
        assert "the worker was lost (WorkerCrashedError: gone)" in do.told[0]

    def test_it_continues_from_what_was_saved(self, do, expected, tmp_path):
        wanted = configs(seeds=2)
        assert measured(do(FakeRay([lost_after(5)], machines=1), wanted, save_seconds=0.0)) == expected(wanted)
        assert [done > 0 for done in starts(Store(tmp_path / "runs").folder(wanted[0]))] == [False, True]
        assert leftovers(tmp_path / "runs") == []

    def test_losses_without_end_are_given_up(self, do):
        results = do(FakeRay([is_lost] * 10 + [None] + [is_lost] * 10, machines=1), configs(seeds=2))
        assert [result.config.seed for result in results] == [0]
        assert "its worker was lost each time" in do.told[-1]

    def test_where_something_is_saved_each_time_they_are_not(self, do, expected):
        wanted = configs(seeds=1, epochs=4)
        ray = FakeRay([lost_after(3)] * (scheduling.MOST_LOSSES + 2), machines=1)
        assert measured(do(ray, wanted, save_seconds=0.0)) == expected(wanted)
        assert ray.accidents == type(ray.accidents)()

    def test_the_driver_is_gone_and_another_continues(self, do, expected, tmp_path):
        """The second finds the groups as they were formed, whatever room there is now."""

        class Killed(BaseException):
            pass

        def kills_the_driver(task):
            with pytest.raises(WorkerCrashedError):
                lost_after(5)(task)
            raise Killed

        wanted = configs(seeds=4)
        with pytest.raises(Killed):
            do(FakeRay([None, kills_the_driver]), wanted, save_seconds=0.0)
        [begun] = GroupFolder.begun(Store(tmp_path / "runs"), wanted[0])
        assert begun.keys == tuple(config.key for config in wanted[2:])
        ray = FakeRay(machines=4)
        assert measured(do(ray, wanted)) == expected(wanted)
        assert [task.configs for task in ray.submitted] == [wanted[2:]]
        assert [done > 0 for done in starts(Store(tmp_path / "runs").folder(wanted[3]))] == [False, True]


class TestFailures:
    def test_a_poisoned_run_is_found_and_does_not_stop_the_rest(self, do, monkeypatch):
        poison(monkeypatch, RuntimeError("no such luck"), seed=5)
        ray = FakeRay(machines=1)
        results = do(ray, configs(seeds=8))
        assert [result.config.seed for result in results] == [0, 1, 2, 3, 4, 6, 7]
        assert sorted(ray.sizes(), reverse=True) == [8, 4, 4, 2, 2, 1, 1]
        assert "seed 5 failed 3 times and is left out: RuntimeError: no such luck" in do.told[-1]

    def test_alone_it_is_tried_three_times_and_its_tracebacks_are_in_the_log(self, do, monkeypatch, tmp_path):
        poison(monkeypatch, RuntimeError("no such luck"), seed=0)
        ray = FakeRay()
        with pytest.raises(FailedRunsError, match="1 runs failed"):
            do(ray, configs(seeds=1), keep_going=False)
        assert len(ray.submitted) == 3
        lines = [line for line in read_log(next(tmp_path.rglob("log.jsonl"))) if line["event"] == "failed"]
        assert [line["try"] for line in lines] == [1, 2, 3]
        assert all("RuntimeError: no such luck" in line["traceback"] for line in lines)
        assert do.tallies.seen[-1].failed == 1

    def test_a_group_that_is_killed_for_its_memory_is_halved(self, do, expected):
        ray = FakeRay([runs_out_of_memory], machines=1)
        wanted = configs()
        assert measured(do(ray, wanted)) == expected(wanted)
        assert ray.sizes() == [4, 2, 2]

    def test_the_same_command_tries_it_again(self, do, expected, monkeypatch):
        wanted = configs(seeds=1)
        with monkeypatch.context() as patch:
            poison(patch, RuntimeError("no such luck"), seed=0)
            assert do(FakeRay(), wanted) == []
        assert measured(do(FakeRay(), wanted)) == expected(wanted)

    def test_what_is_no_runs_fault_ends_it(self, do, monkeypatch):
        poison(monkeypatch, DataError("no data"))
        with pytest.raises(ClusterError, match="no data"):
            do(FakeRay(), configs())


class TestSharedFolder:
    def test_a_machine_that_does_not_see_it_ends_it(self, do, tmp_path, monkeypatch):
        monkeypatch.setattr("fopng.lab.schedule.ray_cluster.SEEN_SECONDS", 0.01)

        def elsewhere(task):
            check_shared(tmp_path / "elsewhere", "text")

        with pytest.raises(ClusterError, match="on every machine of the cluster, got none on .* with --out"):
            do(FakeRay([elsewhere]), configs(seeds=1))

    def test_another_folder_of_the_same_name_is_not_it(self, tmp_path, monkeypatch):
        monkeypatch.setattr("fopng.lab.schedule.ray_cluster.SEEN_SECONDS", 0.01)
        text = mark(tmp_path)
        assert mark(tmp_path) == text
        check_shared(tmp_path, text)
        with pytest.raises(ClusterError):
            check_shared(tmp_path, mark(tmp_path / "other"))


def test_stopped_it_saves_what_is_under_way_and_continues(do, expected, tmp_path, monkeypatch):
    wanted, stop = configs(), []

    def stops(task):
        """The driver is told to stop while this task is under way; the task gets its signal."""
        stop.append(True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scheduling.StopSignals, "__call__", lambda self: True)
            return task.do()

    ray = FakeRay([stops])
    with pytest.raises(Interrupted, match="0 of 4 runs"):
        do(ray, wanted, should_stop=lambda: bool(stop))
    assert ray.cancelled == ray.submitted[1:]
    assert list(tmp_path.rglob("checkpoint.*")) != []
    assert list(tmp_path.rglob("lock")) == []
    assert measured(do(FakeRay(), wanted)) == expected(wanted)
