"""Like runs as a group: which runs, claimed, saved, halved for memory, continued, done one by one where they must."""

import dataclasses
import json
import multiprocessing
import os
import signal
import sys

import pytest
import torch

import fopng.lab.schedule.batched
from fopng.lab.engine import Interrupted
from fopng.lab.engine.batched import Footprint, free_memory, train_replicas
from fopng.lab.engine.observers import read_log
from fopng.lab.runs.request import build, configurations
from fopng.lab.runs.store import Store
from fopng.lab.schedule.groups import alike, cut, is_grouped
from fopng.lab.schedule.inline import do_inline
from fopng.lab.schedule.runner import Runner, Work
from fopng.lab.storage.locks import HeldError
from small_runs import CPU

pytestmark = pytest.mark.usefixtures("shared_cache")

CUDA = torch.device("cuda")


def configs(method="fopng", seeds=3, **changes):
    words = {"benchmark": "split-digits", "epochs": 1, "assignments": ["tasks=2"], **changes}
    return configurations(methods=[method], seeds=range(seeds), **words)


def measured(results):
    names = ("config", "accuracy", "initial_accuracy", "accuracy_before", "status")
    return [{name: getattr(result, name) for name in names} for result in results]


def footprint(method, *assignments, tasks=2):
    wanted = configs(method, 2, assignments=[f"tasks={tasks}", *assignments])
    return Footprint([build(config, None) for config in wanted], CPU)


class Recorder:
    """A runner, what it said, and the size of each group that it trained."""

    def __init__(self, root, **more):
        self.said, self.sizes, self.failing = [], [], lambda plans: None
        self.runner = Runner(store=Store(root), device=CPU, notice=self.said.append, **{"engine": "replicas", **more})

    def train(self, plans, **more):
        self.sizes.append(len(plans))
        self.failing(plans)
        return train_replicas(plans, **more)

    def do(self, wanted, *, again=False, **changes):
        return dataclasses.replace(self.runner, **changes).do(wanted, again=again)

    def stop(self, wanted, steps, **changes):
        """Do runs, and stop after so many steps."""
        asked = iter(range(10**6))
        with pytest.raises(Interrupted, match=r"Stopped after \d+ of \d+ steps\."):
            self.do(wanted, should_stop=lambda: next(asked) >= steps, **changes)

    def folder(self, config):
        return self.runner.store.folder(config)

    def groups(self):
        """The folders of unfinished groups."""
        return list(self.runner.store.root.rglob("group-*"))

    def starts(self, config):
        """From which step a run was begun each time."""
        return [line["done"] for line in read_log(self.folder(config).log) if line["event"] == "run started"]


@pytest.fixture
def make(tmp_path, monkeypatch):
    def make(**more):
        here = Recorder(tmp_path / "runs", **more)
        monkeypatch.setattr(fopng.lab.schedule.batched, "train_replicas", here.train)
        return here

    return make


@pytest.fixture
def here(make):
    return make()


@pytest.fixture(scope="module")
def singles(tmp_path_factory, session_cache):
    """The runs one by one."""
    runner = Runner(store=Store(tmp_path_factory.mktemp("singles")), device=CPU, engine="single")
    return lambda wanted: measured(runner.do(wanted))


class TestWhichRuns:
    def test_that_differ_in_seed_and_numbers(self):
        runs = [
            dataclasses.replace(config, settings={**config.settings, "lr": lr})
            for config in configs()
            for lr in (0.1, 0.2)
        ]
        assert alike(runs) == [runs]

    @pytest.mark.parametrize(
        "change",
        [
            {"assignments": ["tasks=3"]},
            {"assignments": ["tasks=2", "gradients_per_task=3"]},
            {"assignments": ["tasks=2", "projection=orthogonal"]},
            {"epochs": 2},
            {"batch_size": 5},
            {"protocol": "printed"},
            {"first_task_lr": 0.5},
            {"validation": True},
            {"precision": "float64"},
            {"scenario": "task"},
            {"method": "sgd"},
        ],
        ids=str,
    )
    def test_but_in_nothing_else(self, change):
        one, other = configs(seeds=1), configs(seeds=1, **change)
        assert alike(one + other) == [one, other]

    def test_cut_evenly(self):
        assert [len(piece) for piece in cut(range(10), 4)] == [4, 3, 3]
        assert [item for piece in cut(range(10), 4) for item in piece] == list(range(10))
        assert cut([], 3) == []

    @pytest.mark.parametrize(
        ("engine", "device", "model", "runs", "expected"),
        [
            ("auto", CUDA, "convnet", 2, True),
            ("auto", CUDA, "mlp", 1, False),
            ("auto", CPU, "mlp", 2, True),
            ("auto", CPU, "convnet", 2, False),
            ("auto", torch.device("mps"), "mlp", 2, False),
            ("ray", CPU, "mlp", 2, True),
            ("replicas", CPU, "convnet", 1, True),
            ("single", CUDA, "mlp", 5, False),
        ],
    )
    def test_with_which_engine(self, engine, device, model, runs, expected):
        [config] = configs(seeds=1)
        assert is_grouped(dataclasses.replace(config, model=model), runs, engine, device) is expected

    def test_an_engine_that_there_is_not(self, make):
        with pytest.raises(ValueError, match="Expected an engine out of auto, replicas, single, ray, got 'both'"):
            make(engine="both")


class TestResults:
    def test_the_same_in_the_same_places(self, here, singles):
        wanted = configs()
        results = here.do(wanted)
        assert measured(results) == singles(wanted)
        assert here.sizes == [3]
        assert [here.folder(config).result() for config in wanted] == results
        assert here.groups() == list(here.runner.store.root.rglob("checkpoint*")) == []

    def test_of_either_engine_satisfy_the_other(self, here):
        wanted = configs("sgd")
        first = here.do(wanted[:2], engine="single")
        both = here.do(wanted)
        assert both[:2] == first
        assert here.do(wanted, engine="single") == both
        assert here.sizes == [1]

    def test_again(self, here):
        wanted = configs("sgd", 2)
        assert measured(here.do(wanted)) == measured(here.do(wanted, again=True))
        assert here.sizes == [2, 2]

    def test_auto_leaves_one_run_alone(self, here):
        here.do(configs("sgd", 1), engine="auto")
        here.do(configs("sgd", 3), engine="auto")
        assert here.sizes == [2]

    def test_every_run_has_its_log(self, here):
        for result in here.do(configs("sgd", 2)):
            lines = list(read_log(here.folder(result.config).log))
            names = [line["event"] for line in lines]
            assert (names[0], names[-1]) == ("run started", "run ended")
            assert names.count("task ended") == names.count("evaluated") == 2
            assert lines[0]["facts"]["seed"] == result.config.seed
            last = [line["accuracies"] for line in lines if line["event"] == "evaluated"][-1]
            assert last == list(result.accuracy[-1])

    def test_a_run_that_another_process_does_is_left_to_it(self, here):
        wanted, told = configs("sgd"), []
        claim = here.folder(wanted[1]).claim()
        claim.__enter__()

        def notice(sentence):
            told.append(sentence)
            claim.__exit__(None, None, None)

        assert [result.config for result in here.do(wanted, notice=notice)] == wanted
        assert "is being done elsewhere" in told[0]
        assert here.sizes == [2]

    def test_all_are_claimed_while_they_go_on(self, here):
        wanted, refused = configs("sgd"), []

        class Intruder:
            def observe(self, event):
                for config in wanted:
                    try:
                        with here.folder(config).claim():
                            pass
                    except HeldError:
                        refused.append(config.seed)

        here.do(wanted, observers=[Intruder()])
        assert set(refused) == {0, 1, 2}


class TestMemory:
    def test_any_cut_gives_the_same_results(self, here, singles):
        wanted = configs(seeds=5)
        assert measured(here.do(wanted, memory_limit=1)) == singles(wanted)
        assert here.sizes == [1] * 5
        assert "at most 1 do" in here.said[0]

    def test_as_many_as_fit(self, here):
        room = footprint("sgd")
        limit = int((room.common + 2.5 * room.each) / 0.8)
        assert room.count(limit) == 2
        here.do(configs("sgd", 4), memory_limit=limit)
        assert here.sizes == [2, 2]

    def test_groups_on_several_streams_share_it(self, make):
        """Of as many groups as there are: one alone has all of it."""
        room = footprint("sgd")
        limit = int(2 * (room.common + 2.5 * room.each) / 0.8)
        assert room.count(limit) >= 4
        here = make(memory_limit=limit, jobs=2)
        do_inline(Work(here.runner, configs("sgd", 4) + configs("sgd", 4, epochs=2)))
        assert here.sizes == [2, 2, 2, 2]
        do_inline(Work(here.runner, configs("sgd", 4, epochs=3)))
        assert here.sizes[4:] == [4]

    @pytest.mark.parametrize(
        ("method", "setting"), [("er", "capacity"), ("gem", "samples_per_task"), ("lwf", "distilled_samples")]
    )
    def test_the_estimate_counts_the_samples_that_are_kept(self, method, setting):
        few, many = (footprint(method, f"{setting}={count}") for count in (20, 200))
        assert footprint("sgd").each < few.each < many.each

    def test_the_estimate_counts_the_gradients_that_are_kept(self):
        many = footprint("fopng", "max_directions=none", tasks=5)
        assert footprint("sgd").each < footprint("fopng").each < many.each

    def test_the_free_memory_is_known(self):
        assert free_memory(CPU) > 2**20
        assert free_memory(torch.device("meta")) is None

    @pytest.mark.parametrize(
        "error",
        [
            torch.OutOfMemoryError("CUDA out of memory."),
            MemoryError(),
            RuntimeError("DefaultCPUAllocator: can't allocate memory"),
        ],
        ids=repr,
    )
    def test_when_it_is_not_enough_the_group_is_halved(self, here, singles, error):
        wanted = configs(seeds=5)

        def fails(plans):
            if len(plans) > 2:
                raise error

        here.failing = fails
        assert measured(here.do(wanted)) == singles(wanted)
        assert here.sizes == [5, 3, 2, 1, 2]
        assert "not enough for 5 runs as one group; going on with 3." in here.said[0]
        assert here.groups() == []

    def test_where_one_alone_does_not_fit_it_is_done_singly(self, here):
        def fails(plans):
            raise torch.OutOfMemoryError("CUDA out of memory.")

        here.failing = fails
        assert [result.status for result in here.do(configs("sgd", 2))] == ["finished"] * 2

    def test_other_errors_go_through(self, here):
        def fails(plans):
            raise RuntimeError("something else")

        here.failing = fails
        with pytest.raises(RuntimeError, match="something else"):
            here.do(configs("sgd", 2))


def test_runs_that_cannot_be_a_group_are_done_one_by_one(here):
    assert [result.status for result in here.do(configs("joint", 2))] == ["finished"] * 2
    [sentence] = here.said
    assert "joint training" in sentence
    assert "one by one" in sentence


OWN = """
import torch
from torch import nn

class Plain(nn.Module):
    def __init__(self, stream):
        super().__init__()
        self.layer = nn.Linear(64, stream.outputs)

    def forward(self, x, task=None):
        return self.layer(torch.tanh(x.flatten(1)))

class Drawing(Plain):
    def forward(self, x, task=None):
        return self.layer(nn.functional.dropout(x.flatten(1), 0.5, self.training))
"""


@pytest.mark.parametrize(("name", "sizes"), [("Plain", [2]), ("Drawing", [])])
def test_a_users_own_model(here, singles, tmp_path, monkeypatch, name, sizes):
    (tmp_path / "own_models.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("own_models", None)
    wanted = configs(seeds=2, model=f"own_models:{name}")
    assert measured(here.do(wanted)) == singles(wanted)
    assert here.sizes == sizes
    assert bool(here.said) == (sizes == [])


class TestContinued:
    def test_as_it_was(self, here):
        wanted = configs()
        here.stop(wanted, 50)
        [folder] = here.groups()
        assert json.loads((folder / "group.json").read_text())["runs"] == [config.key for config in wanted]
        here.do(wanted)
        assert here.sizes == [3, 3]
        assert here.starts(wanted[0]) == [0, 51]
        assert here.groups() == []

    def test_also_when_the_memory_would_now_cut_it_otherwise(self, here):
        wanted = configs("sgd", 6)
        here.stop(wanted[:4], 20)
        here.do(wanted, memory_limit=1)
        assert here.sizes == [4, 4, 1, 1]

    def test_also_when_some_of_its_runs_have_ended_since(self, here):
        wanted = configs("sgd", 3)
        here.stop(wanted, 20)
        first = here.do(wanted[:1], engine="single")
        assert here.do(wanted)[:1] == first
        assert here.sizes == [3, 3]

    def test_also_when_a_single_run_is_missing(self, here):
        wanted = configs("sgd", 2)
        here.stop(wanted, 20)
        here.do(wanted[:1], engine="single")
        here.do(wanted, engine="auto")
        assert here.sizes == [2, 2]

    def test_not_when_all_is_to_be_done_again(self, here):
        wanted = configs("sgd", 2)
        here.stop(wanted, 20)
        here.do(wanted, again=True)
        assert here.starts(wanted[0]) == [0]

    def test_what_is_left_of_it_goes_when_its_runs_were_done_one_by_one(self, here):
        wanted = configs("sgd", 2)
        here.stop(wanted, 20)
        here.do(wanted, engine="single")
        assert here.groups() == []

    def test_a_runs_own_checkpoint_stays_until_it_has_its_result(self, here):
        wanted = configs("sgd", 2)
        here.stop(wanted[:1], 20, engine="single")
        own = here.folder(wanted[0]).checkpoint
        before = own.load()
        here.stop(wanted, 30)
        assert own.load().generation == before.generation > 0
        here.do(wanted)
        assert own.load().state is None

    def test_a_description_that_cannot_be_read_is_written_anew(self, here):
        wanted = configs("sgd", 2)
        here.stop(wanted, 20)
        [folder] = here.groups()
        (folder / "group.json").write_text("{")
        assert [result.status for result in here.do(wanted)] == ["finished"] * 2
        assert here.starts(wanted[0])[1] > 0
        assert here.groups() == []

    def test_killed_again_and_again_it_ends_with_the_same_bits(self, tmp_path, shared_cache):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["fopng.lab.schedule.inline"])

        def start(root):
            child = context.Process(target=go_on, args=(root, shared_cache))
            child.start()
            return child

        whole = start(tmp_path / "whole")
        whole.join()
        kills = 0
        for moment in (0.4, 0.9, 0.7, 1.0, 0.8, None):
            child = start(tmp_path / "killed")
            child.join(moment)
            if child.exitcode is None:
                os.kill(child.pid, signal.SIGKILL)
                child.join()
                kills += 1
        assert kills
        assert child.exitcode == 0
        first, second = (Store(tmp_path / name).results() for name in ("whole", "killed"))
        assert len(first) == 3
        assert measured(first) == measured(second)
        assert [result.measured for result in first] == [result.measured for result in second]
        assert not list((tmp_path / "killed").rglob("group-*"))


def go_on(root, cache):
    """In another process: three runs as a group, saved as often as can be."""
    os.environ["FOPNG_CACHE"] = str(cache)
    torch.set_num_threads(1)
    longer = configs(epochs=12, assignments=["tasks=3", "lr=1e-3"])
    Runner(store=Store(root), device=CPU, engine="replicas", save_seconds=0.05).do(longer)
