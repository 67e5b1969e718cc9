"""What is sent out, what comes back and what becomes of it, on a cluster whose accidents are chosen."""

import pytest
import torch

import fopng.lab.cluster.worker as worker
import fopng.lab.runs.batched
import fopng.lab.runs.runner
from distributed.fake_cluster import FakeCluster, is_lost, is_lost_on_the_way, lies
from fopng.lab.cluster import ClusterError, Dispatcher
from fopng.lab.cluster.needs import PROCESS_BYTES, Estimator
from fopng.lab.data.errors import DataError
from fopng.lab.engine import Interrupted
from fopng.lab.engine.observers import read_log
from fopng.lab.runs.groups import WaveFolder
from fopng.lab.runs.request import configurations
from fopng.lab.runs.runner import Workshop
from fopng.lab.runs.store import Store
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
    """The same runs by the local engine, made once."""
    made = {}

    def results(wanted):
        key = tuple(config.key for config in wanted)
        if key not in made:
            shop = Workshop(store=Store(tmp_path_factory.mktemp("local")), device=CPU)
            made[key] = measured(shop.do(wanted))
        return made[key]

    return results


@pytest.fixture
def told():
    return []


@pytest.fixture
def dispatch(tmp_path, told):
    """Do runs on a cluster; gives the results, and the dispatcher by attribute."""

    def do(cluster, wanted, *, again=False, **changes):
        shop = Workshop(store=Store(tmp_path / "runs"), device=CPU, notice=told.append, **changes)
        do.tallies = []
        do.dispatcher = Dispatcher(shop, cluster, show=do.tallies.append)
        return do.dispatcher.do(wanted, again=again)

    return do


def poisoned(monkeypatch, error, seed=1):
    """Let the runs of a seed raise, alone and in any company."""
    train, side_by_side = fopng.lab.runs.runner.train, fopng.lab.runs.batched.train_replicas

    def alone(plan, **more):
        if plan.seed == seed:
            raise error
        return train(plan, **more)

    def together(plans, **more):
        if any(plan.seed == seed for plan in plans):
            raise error
        return side_by_side(plans, **more)

    monkeypatch.setattr(fopng.lab.runs.runner, "train", alone)
    monkeypatch.setattr(fopng.lab.runs.batched, "train_replicas", together)


def leftovers(root):
    return [path.name for path in root.rglob("*") if path.is_file() and path.name not in KEPT]


KEPT = ("config.json", "result.json", "log.jsonl")


class TestDone:
    def test_the_same_results_as_the_local_engine(self, dispatch, expected, tmp_path):
        wanted = [*configs(), *configs("ewc", seeds=3), *configs("joint", seeds=2)]
        assert measured(dispatch(FakeCluster(), wanted)) == expected(wanted)
        assert leftovers(tmp_path / "runs") == []
        assert all(list(read_log(path))[-1]["event"] == "run ended" for path in tmp_path.rglob("log.jsonl"))

    def test_waves_fill_the_machines(self, dispatch):
        cluster = FakeCluster(machines=3)
        dispatch(cluster, configs(seeds=7))
        assert [len(errand.configs) for errand, _ in cluster.submitted] == [3, 2, 2]

    def test_what_is_done_is_not_done_again_unless_asked(self, dispatch, tmp_path):
        wanted = configs(seeds=2)
        first = dispatch(FakeCluster(), wanted)
        cluster = FakeCluster()
        assert dispatch(cluster, wanted) == first
        assert cluster.submitted == []
        assert measured(dispatch(cluster, wanted, again=True)) == measured(first)
        assert sum(len(errand.configs) for errand, _ in cluster.submitted) == 2

    def test_curves_come_home(self, dispatch, tmp_path):
        dispatch(FakeCluster(), configs(seeds=1), trackers=["tensorboard"])
        assert [path.stat().st_size > 0 for path in tmp_path.rglob("events.out.tfevents*")] == [True]

    def test_the_tally(self, dispatch):
        dispatch(FakeCluster(), configs())
        last = dispatch.tallies[-1]
        assert (last.done, last.running, last.waiting, last.failed) == (2, 0, 0, 0)
        assert (last.runs, last.runs_done, last.progress) == (4, 4, 4)

    def test_a_run_that_another_process_does_is_waited_for(self, dispatch, expected, tmp_path, told, monkeypatch):
        wanted = configs(seeds=3)
        folder = Store(tmp_path / "runs").folder(wanted[1])
        claim = folder.claim(again=False)
        claim.__enter__()
        monkeypatch.setattr("fopng.lab.cluster.dispatch.HELD_SECONDS", 0.0)
        cluster = FakeCluster()
        done = cluster.ended

        def ended(seconds):
            if not cluster.waiting:
                claim.__exit__(None, None, None)
                cluster.ended = done
            return done(seconds)

        cluster.ended = ended
        assert measured(dispatch(cluster, wanted)) == expected(wanted)
        assert [len(errand.configs) for errand, _ in cluster.submitted] == [1, 1, 1]
        assert "is being done elsewhere" in told[0]


class TestNeeds:
    def test_are_stated(self, dispatch):
        cluster = FakeCluster()
        dispatch(cluster, configs(seeds=2), again=True)
        for errand, needs in cluster.submitted:
            assert (needs.cpus, needs.gpus) == (1, 0)
            assert needs.memory > PROCESS_BYTES["cpu"]
            assert errand.device == "cpu"

    def test_grow_with_the_wave(self):
        estimator, wanted = Estimator(CPU, 3, None), configs()
        one, four = estimator.needs(wanted[:1]), estimator.needs(wanted)
        assert one.memory < four.memory < 4 * one.memory
        assert one.cpus == 3

    def test_a_gpu(self):
        assert Estimator(torch.device("cuda"), 1, None).needs(configs()).gpus == 1

    def test_waves_fit_into_the_largest_machine(self, dispatch):
        estimator, wanted = Estimator(CPU, 1, None), configs()
        two = estimator.needs(wanted[:2]).memory
        cluster = FakeCluster(machines=1, memory=two)
        dispatch(cluster, wanted)
        assert [len(errand.configs) for errand, _ in cluster.submitted] == [2, 2]


class TestLosses:
    def test_a_lost_wave_is_sent_out_again(self, dispatch, expected, told):
        wanted = configs()
        cluster = FakeCluster([is_lost, None, lies])
        assert measured(dispatch(cluster, wanted)) == expected(wanted)
        assert len(cluster.submitted) == 4
        assert "the worker was lost (WorkerCrashedError)" in told[0]

    def test_it_goes_on_from_what_was_saved(self, dispatch, expected, tmp_path, monkeypatch):
        monkeypatch.setattr(worker, "LETTER_SECONDS", 0.0)
        monkeypatch.setattr(worker, "SENDING_SHARE", 1e9)
        wanted = configs(seeds=2)
        cluster = FakeCluster([is_lost_on_the_way(5)], machines=1)
        assert measured(dispatch(cluster, wanted, save_seconds=0.0)) == expected(wanted)
        started = [line for line in read_log(next(tmp_path.rglob("log.jsonl"))) if line["event"] == "run started"]
        assert [line["done"] > 0 for line in started] == [False, True]
        assert leftovers(tmp_path / "runs") == []

    def test_losses_without_end_are_given_up(self, dispatch, told):
        wanted = configs(seeds=2)
        results = dispatch(FakeCluster([is_lost] * 10 + [None] + [is_lost] * 10, machines=1), wanted)
        assert [result.config.seed for result in results] == [0]
        assert [failed.config.seed for failed in dispatch.dispatcher.failed] == [1]
        assert "its worker was lost each time" in told[-1]

    def test_the_driver_is_gone_and_another_goes_on(self, dispatch, expected, tmp_path, monkeypatch):
        """The second finds the waves as they were formed, whatever room there is now."""
        monkeypatch.setattr(worker, "LETTER_SECONDS", 0.0)
        monkeypatch.setattr(worker, "SENDING_SHARE", 1e9)

        class Killed(BaseException):
            pass

        def kills_the_driver(errand, cluster):
            is_lost_on_the_way(5)(errand, cluster)
            for letter in cluster.letters():
                dispatch.dispatcher._read(letter)
            raise Killed

        wanted = configs(seeds=4)
        with pytest.raises(Killed):
            dispatch(FakeCluster([None, kills_the_driver]), wanted, save_seconds=0.0)
        begun = WaveFolder.begun(Store(tmp_path / "runs"), wanted[0])
        assert [wave.keys for wave in begun] == [tuple(config.key for config in wanted[2:])]
        cluster = FakeCluster(machines=4)
        assert measured(dispatch(cluster, wanted)) == expected(wanted)
        assert [list(errand.configs) for errand, _ in cluster.submitted] == [wanted[2:]]
        assert any("checkpoint" in name for name in cluster.submitted[0][0].parcel.whole)

    def test_what_was_saved_alone_goes_on_alone(self, dispatch, expected, tmp_path, monkeypatch):
        monkeypatch.setattr(worker, "LETTER_SECONDS", 0.0)
        monkeypatch.setattr(worker, "SENDING_SHARE", 1e9)
        wanted = configs(seeds=3)

        def stops(errand, cluster):
            lost = is_lost_on_the_way(5)(errand, cluster)
            dispatch.dispatcher._stop()
            return lost

        with pytest.raises(Interrupted):
            dispatch(FakeCluster([stops], machines=3), wanted[:1], save_seconds=0.0)
        cluster = FakeCluster(machines=1)
        assert measured(dispatch(cluster, wanted)) == expected(wanted)
        assert [list(errand.configs) for errand, _ in cluster.submitted] == [wanted[:1], wanted[1:]]
        started = [e for e in read_log(Store(tmp_path / "runs").folder(wanted[0]).log) if e["event"] == "run started"]
        assert [line["done"] > 0 for line in started] == [False, True]


class TestFailures:
    def test_a_poisoned_run_is_found_out_and_does_not_stop_the_rest(self, dispatch, told, monkeypatch, tmp_path):
        poisoned(monkeypatch, RuntimeError("no such luck"), seed=5)
        wanted = configs(seeds=8)
        cluster = FakeCluster(machines=1)
        results = dispatch(cluster, wanted)
        assert [result.config.seed for result in results] == [0, 1, 2, 3, 4, 6, 7]
        sizes = [len(errand.configs) for errand, _ in cluster.submitted]
        assert sorted(sizes, reverse=True) == [8, 4, 4, 2, 2, 1, 1]
        assert [failed.config.seed for failed in dispatch.dispatcher.failed] == [5]
        assert "seed 5 failed 3 times and is left out: RuntimeError: no such luck" in told[-1]

    def test_alone_it_is_tried_three_times_and_its_tracebacks_are_in_the_log(self, dispatch, monkeypatch, tmp_path):
        poisoned(monkeypatch, RuntimeError("no such luck"), seed=0)
        cluster = FakeCluster()
        assert dispatch(cluster, configs(seeds=1)) == []
        assert len(cluster.submitted) == 3
        lines = [line for line in read_log(next(tmp_path.rglob("log.jsonl"))) if line["event"] == "failed"]
        assert [line["try"] for line in lines] == [1, 2, 3]
        assert all("RuntimeError: no such luck" in line["traceback"].splitlines()[-1] for line in lines)
        assert dispatch.tallies[-1].failed == 1

    def test_the_same_command_tries_it_again(self, dispatch, expected, monkeypatch):
        wanted = configs(seeds=1)
        with monkeypatch.context() as patch:
            poisoned(patch, RuntimeError("no such luck"), seed=0)
            assert dispatch(FakeCluster(), wanted) == []
        assert measured(dispatch(FakeCluster(), wanted)) == expected(wanted)

    def test_what_is_no_runs_fault_ends_it(self, dispatch, monkeypatch):
        poisoned(monkeypatch, DataError("no data"))
        with pytest.raises(ClusterError, match="no data"):
            dispatch(FakeCluster(), configs())


class TestStopping:
    def test_what_is_under_way_is_saved(self, dispatch, expected, tmp_path, monkeypatch):
        monkeypatch.setattr(worker, "LETTER_SECONDS", 0.0)
        wanted = configs()
        cluster, stop = FakeCluster(), []

        def stops(errand, cluster):
            """The driver is stopped while this errand is under way: it writes, and is told."""
            stop.append(True)
            dispatch.dispatcher._stop()
            return worker.do_errand(errand, cluster.mailbox.post)

        cluster.accidents.append(stops)
        with pytest.raises(Interrupted, match="0 of 4 runs"):
            dispatch(cluster, wanted, should_stop=lambda: bool(stop))
        assert cluster.stopped
        assert list(tmp_path.rglob("checkpoint.?")) != []
        assert list(tmp_path.rglob("lock")) == []
        assert measured(dispatch(FakeCluster(), wanted)) == expected(wanted)
