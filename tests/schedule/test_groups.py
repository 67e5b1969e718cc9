"""Runs side by side as a user asks for them: grouped, cut, claimed, saved, taken up, fallen back from."""

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


def measured(result):
    return {
        name: getattr(result, name) for name in ("config", "accuracy", "initial_accuracy", "accuracy_before", "status")
    }


class Shop:
    """A workshop that remembers what it said and how many runs stood side by side each time."""

    def __init__(self, root, monkeypatch, **more):
        self.said, self.waves = [], []
        self.shop = Runner(store=Store(root), device=CPU, notice=self.said.append, **{"engine": "replicas", **more})
        monkeypatch.setattr(fopng.lab.schedule.batched, "train_replicas", self.train)

    def train(self, plans, **more):
        self.waves.append(len(plans))
        return train_replicas(plans, **more)


@pytest.fixture
def open_shop(tmp_path, monkeypatch):
    return lambda **more: Shop(tmp_path / "runs", monkeypatch, **more)


@pytest.fixture(scope="module")
def singles(tmp_path_factory, session_cache):
    """The runs one by one, made once."""

    def results(wanted):
        shop = Runner(store=Store(tmp_path_factory.getbasetemp() / "singles"), device=CPU, engine="single")
        return [measured(result) for result in shop.do(wanted)]

    return results


class TestGroups:
    def test_runs_that_differ_in_seed_and_numbers_are_alike(self):
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
    def test_others_are_not(self, change):
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
            ("replicas", CPU, "convnet", 1, True),
            ("single", CUDA, "mlp", 5, False),
        ],
    )
    def test_which_engine(self, engine, device, model, runs, expected):
        [config] = configs(seeds=1)
        assert is_grouped(dataclasses.replace(config, model=model), runs, engine, device) is expected

    def test_an_engine_that_there_is_not(self, tmp_path):
        with pytest.raises(ValueError, match="Expected an engine out of auto, replicas, single"):
            Runner(store=Store(tmp_path), device=CPU, engine="both")


class TestStore:
    def test_the_same_results_in_the_same_places(self, open_shop, singles):
        wanted, here = configs(), open_shop()
        results = here.shop.do(wanted)
        assert [measured(result) for result in results] == singles(wanted)
        assert here.waves == [3]
        for config, result in zip(wanted, results, strict=True):
            assert here.shop.store.folder(config).result() == result
        assert not list(here.shop.store.root.rglob("group-*"))
        assert not list(here.shop.store.root.rglob("checkpoint*"))

    def test_a_result_of_either_satisfies_the_other(self, open_shop):
        wanted = configs("sgd")
        first = open_shop(engine="single").shop.do(wanted[:2])
        here = open_shop()
        both = here.shop.do(wanted)
        assert both[:2] == first
        assert here.waves == [1]
        assert open_shop(engine="single").shop.do(wanted) == both
        assert here.waves == [1]

    def test_again(self, open_shop):
        here = open_shop()
        first = here.shop.do(configs("sgd", 2))
        assert [measured(r) for r in here.shop.do(configs("sgd", 2), again=True)] == [measured(r) for r in first]
        assert here.waves == [2, 2]

    def test_auto_leaves_one_run_alone(self, open_shop):
        here = open_shop(engine="auto")
        here.shop.do(configs("sgd", 1))
        assert here.waves == []
        here.shop.do(configs("sgd", 3))
        assert here.waves == [2]

    def test_every_run_has_its_log(self, open_shop):
        here = open_shop()
        for result in here.shop.do(configs("sgd", 2)):
            lines = list(read_log(here.shop.store.folder(result.config).log))
            names = [line["event"] for line in lines]
            assert names[0] == "run started"
            assert names[-1] == "run ended"
            assert names.count("task ended") == names.count("evaluated") == 2
            assert lines[0]["facts"]["seed"] == result.config.seed
            assert [line["accuracies"] for line in lines if line["event"] == "evaluated"][-1] == list(
                result.accuracy[-1]
            )

    def test_a_run_that_another_process_does_is_left_to_it(self, open_shop):
        wanted, here = configs("sgd"), open_shop()
        other = here.shop.store.folder(wanted[1])
        claim = other.claim()
        claim.__enter__()
        told = []

        def notice(sentence):
            told.append(sentence)
            claim.__exit__(None, None, None)

        results = dataclasses.replace(here.shop, notice=notice).do(wanted)
        assert "is being done elsewhere" in told[0]
        assert [result.config for result in results] == wanted
        assert here.waves == [2]

    def test_all_are_claimed_while_they_go_on(self, open_shop):
        wanted, here, refused = configs("sgd"), open_shop(), []

        class Intruder:
            def observe(self, event):
                for config in wanted:
                    try:
                        with here.shop.store.folder(config).claim():
                            pass
                    except HeldError:
                        refused.append(config.seed)

        dataclasses.replace(here.shop, observers=[Intruder()]).do(wanted)
        assert set(refused) == {0, 1, 2}


OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory."),
    MemoryError(),
    RuntimeError("DefaultCPUAllocator: can't allocate memory"),
]


class TestWaves:
    def test_any_cut_gives_the_same_results(self, open_shop, singles):
        wanted = configs(seeds=5)
        here = open_shop(memory_limit=1)
        results = here.shop.do(wanted)
        assert here.waves == [1] * 5
        assert "at most 1 do" in here.said[0]
        assert [measured(result) for result in results] == singles(wanted)

    def test_as_many_as_fit(self, open_shop):
        plans = [build(config, None) for config in configs("sgd", 2)]
        room = Footprint(plans, CPU)
        assert room.count(int((room.common + 2.5 * room.each) / 0.8)) == 2
        here = open_shop(memory_limit=int((room.common + 2.5 * room.each) / 0.8))
        here.shop.do(configs("sgd", 4))
        assert here.waves == [2, 2]

    def test_groups_that_have_the_device_together_share_its_memory(self, open_shop):
        """Of as many groups as there are: one alone has all of it."""
        plans = [build(config, None) for config in configs("sgd", 2)]
        room = Footprint(plans, CPU)
        limit = int(2 * (room.common + 2.5 * room.each) / 0.8)
        assert room.count(limit) >= 4
        here = open_shop(memory_limit=limit, jobs=2)
        do_inline(Work(here.shop, configs("sgd", 4) + configs("sgd", 4, epochs=2)))
        assert here.waves == [2, 2, 2, 2]
        do_inline(Work(here.shop, configs("sgd", 4, epochs=3)))
        assert here.waves[4:] == [4]

    def test_the_estimate_counts_what_is_stored(self):
        plain, storing, more = (
            Footprint([build(config, None) for config in configs(method, 2, assignments=words)], CPU).each
            for method, words in [
                ("sgd", ["tasks=2"]),
                ("fopng", ["tasks=2"]),
                ("fopng", ["tasks=5", "max_directions=none"]),
            ]
        )
        assert plain < storing < more

    @pytest.mark.parametrize(
        ("method", "setting"), [("er", "capacity"), ("gem", "samples_per_task"), ("lwf", "distilled_samples")]
    )
    def test_the_estimate_counts_the_samples_that_are_kept(self, method, setting):
        plain, few, many = (
            Footprint([build(config, None) for config in configs(name, 2, assignments=["tasks=2", *words])], CPU).each
            for name, words in [("sgd", []), (method, [f"{setting}=20"]), (method, [f"{setting}=200"])]
        )
        assert plain < few < many

    def test_the_free_memory_is_known(self):
        assert free_memory(CPU) > 2**20
        assert free_memory(torch.device("meta")) is None

    @pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=repr)
    def test_out_of_memory_halves_the_wave(self, open_shop, singles, monkeypatch, error):
        wanted, here = configs(seeds=5), open_shop()

        def train(plans, **more):
            if len(plans) > 2:
                here.waves.append(len(plans))
                raise error
            return here.train(plans, **more)

        monkeypatch.setattr(fopng.lab.schedule.batched, "train_replicas", train)
        results = here.shop.do(wanted)
        assert here.waves == [5, 3, 2, 1, 2]
        assert [measured(result) for result in results] == singles(wanted)
        assert "not enough for 5 runs as one group; going on with 3." in here.said[0]
        assert not list(here.shop.store.root.rglob("group-*"))

    def test_where_one_alone_does_not_fit_it_is_done_singly(self, open_shop, monkeypatch):
        here = open_shop()

        def train(plans, **more):
            raise torch.OutOfMemoryError("CUDA out of memory.")

        monkeypatch.setattr(fopng.lab.schedule.batched, "train_replicas", train)
        assert [result.status for result in here.shop.do(configs("sgd", 2))] == ["finished"] * 2

    def test_other_errors_go_through(self, open_shop, monkeypatch):
        here = open_shop()

        def train(plans, **more):
            raise RuntimeError("something else")

        monkeypatch.setattr(fopng.lab.schedule.batched, "train_replicas", train)
        with pytest.raises(RuntimeError, match="something else"):
            here.shop.do(configs("sgd", 2))

    def test_runs_that_cannot_is_grouped_are_done_one_by_one(self, open_shop):
        here = open_shop()
        results = here.shop.do(configs("joint", 2))
        assert [result.status for result in results] == ["finished"] * 2
        assert len(here.said) == 1
        assert "joint training" in here.said[0]
        assert "one by one" in here.said[0]


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


@pytest.mark.parametrize(("name", "waves"), [("Plain", [2]), ("Drawing", [])])
def test_a_users_own_model(open_shop, tmp_path, monkeypatch, name, waves):
    (tmp_path / "own_models.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("own_models", None)
    wanted, here = configs(seeds=2, model=f"own_models:{name}"), open_shop()
    results = here.shop.do(wanted)
    assert here.waves == waves
    assert bool(here.said) == (waves == [])
    alone = Runner(store=Store(tmp_path / "alone"), device=CPU, engine="single").do(wanted)
    assert [measured(result) for result in results] == [measured(result) for result in alone]


class TestTakenUp:
    def stopped(self, here, wanted, steps):
        asked = iter(range(10**6))
        shop = dataclasses.replace(here.shop, should_stop=lambda: next(asked) >= steps)
        with pytest.raises(Interrupted, match=r"Stopped after \d+ of \d+ steps\."):
            shop.do(wanted)
        [folder] = here.shop.store.root.rglob("group-*")
        return folder

    def test_the_same_wave_goes_on(self, open_shop):
        wanted, here = configs(), open_shop()
        folder = self.stopped(here, wanted, 50)
        assert json.loads((folder / "group.json").read_text())["runs"] == [config.key for config in wanted]
        here.shop.do(wanted)
        assert here.waves == [3, 3]
        starts = [
            line["done"] for line in read_log(here.shop.store.folder(wanted[0]).log) if line["event"] == "run started"
        ]
        assert starts == [0, 51]
        assert not folder.exists()

    def test_also_when_the_memory_would_now_cut_it_otherwise(self, open_shop):
        wanted, here = configs("sgd", 4), open_shop()
        self.stopped(here, wanted, 20)
        dataclasses.replace(here.shop, memory_limit=1).do([*wanted, *configs("sgd", 6)[4:]])
        assert here.waves == [4, 4, 1, 1]

    def test_also_when_some_of_its_runs_have_ended_since(self, open_shop):
        wanted, here = configs("sgd", 3), open_shop()
        self.stopped(here, wanted, 20)
        [first] = dataclasses.replace(here.shop, engine="single").do(wanted[:1])
        results = here.shop.do(wanted)
        assert here.waves == [3, 3]
        assert results[0] == first

    def test_also_when_a_single_run_is_missing(self, open_shop):
        wanted, here = configs("sgd", 2), open_shop(engine="auto")
        self.stopped(here, wanted, 20)
        dataclasses.replace(here.shop, engine="single").do(wanted[:1])
        here.shop.do(wanted)
        assert here.waves == [2, 2]

    def test_not_when_all_is_to_be_done_again(self, open_shop):
        wanted, here = configs("sgd", 2), open_shop()
        self.stopped(here, wanted, 20)
        here.shop.do(wanted, again=True)
        starts = [
            line["done"] for line in read_log(here.shop.store.folder(wanted[0]).log) if line["event"] == "run started"
        ]
        assert starts == [0]

    def test_what_is_left_of_it_goes_when_its_runs_were_done_one_by_one(self, open_shop):
        wanted, here = configs("sgd", 2), open_shop()
        folder = self.stopped(here, wanted, 20)
        dataclasses.replace(here.shop, engine="single").do(wanted)
        assert not folder.exists()

    def test_a_runs_own_checkpoint_stays_until_it_has_its_result(self, open_shop):
        wanted, here = configs("sgd", 2), open_shop()
        asked = iter(range(10**6))
        alone = dataclasses.replace(here.shop, engine="single", should_stop=lambda: next(asked) >= 20)
        with pytest.raises(Interrupted):
            alone.do(wanted[:1])
        own = here.shop.store.folder(wanted[0]).checkpoint
        before = own.load()
        self.stopped(here, wanted, 30)
        assert own.load().generation == before.generation > 0
        here.shop.do(wanted)
        assert own.load().state is None

    def test_a_description_that_cannot_be_read_is_written_anew(self, open_shop):
        wanted, here = configs("sgd", 2), open_shop()
        folder = self.stopped(here, wanted, 20)
        (folder / "group.json").write_text("{")
        assert [result.status for result in here.shop.do(wanted)] == ["finished"] * 2
        assert not folder.exists()

    def test_killed_again_and_again_it_ends_with_the_same_bits(self, tmp_path, shared_cache):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["fopng.lab.schedule.runner"])

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
        assert [removed(result) for result in first] == [removed(result) for result in second]
        assert not list((tmp_path / "killed").rglob("group-*"))


LONGER = {"epochs": 12, "assignments": ["tasks=3", "lr=1e-3"]}


def removed(result):
    return measured(result) | {"removed": result.measured.get("removed_fraction")}


def go_on(root, cache):
    """In another process: three runs side by side, saved as often as can be."""
    os.environ["FOPNG_CACHE"] = str(cache)
    torch.set_num_threads(1)
    Runner(store=Store(root), device=CPU, engine="replicas", save_seconds=0.05).do(configs(**LONGER))
