"""No run is lost: processes that are killed, disks that are full, files that are cut short, two at the same work."""

import dataclasses
import json
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import time

import pytest
import torch

from fopng.lab.engine import train
from fopng.lab.engine.observers import read_log
from fopng.lab.runs.request import build, configurations
from fopng.lab.runs.store import Store
from fopng.lab.schedule.runner import Runner
from fopng.lab.storage.atomic import WriteError
from fopng.lab.storage.checkpoint import SLOTS, Checkpoint
from fopng.lab.storage.locks import HeldError
from processes import wait_until
from small_runs import CPU, final_state, same

KILLS = 20

pytestmark = pytest.mark.usefixtures("shared_cache")

[RUN] = configurations(
    benchmark="split-digits", methods=["fopng"], seeds=[0], epochs=4, assignments=["tasks=3", "lr=1e-3"]
)


@pytest.fixture(scope="module")
def processes():
    """Processes that begin in no time: each is forked from a server that has torch loaded."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fopng.lab.schedule.inline"])
    return context


def go_on(folder, cache, limit=None):
    """In another process: the run, from wherever it stands, saved as often as can be."""
    os.environ["FOPNG_CACHE"] = str(cache)
    torch.set_num_threads(1)
    if limit is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        train(build(RUN, None), device=CPU, checkpoint=Checkpoint(folder), save_seconds=0.1)
    except WriteError:
        os._exit(3)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, session_cache, processes):
    """The run that nothing happened to."""
    folder = tmp_path_factory.mktemp("whole")
    child = processes.Process(target=go_on, args=(folder, session_cache))
    child.start()
    child.join()
    assert child.exitcode == 0
    return final_state(Checkpoint(folder))


@pytest.fixture
def start(processes, tmp_path, shared_cache):
    def start(limit=None, folder=tmp_path):
        child = processes.Process(target=go_on, args=(folder, shared_cache, limit))
        child.start()
        return child

    return start


def position(folder):
    """How many steps the newest checkpoint holds; 0 without one."""
    state = Checkpoint(folder).load().state
    return 0 if state is None else state["position"]["done"]


def test_killed_at_twenty_random_moments_it_ends_with_the_same_bits(start, whole, tmp_path):
    moments, kills, finished = random.Random(0), 0, 0
    while kills < KILLS or finished == 0:
        folder = tmp_path / str(finished)
        folder.mkdir(exist_ok=True)
        child = start(folder=folder)
        # The last of it is left to end by itself, once there were enough.
        child.join(moments.uniform(0, 1.0) if kills < KILLS else None)
        if child.exitcode is None:
            os.kill(child.pid, signal.SIGKILL)
            child.join()
            kills += child.exitcode == -signal.SIGKILL
        if child.exitcode == 0:
            assert same(final_state(Checkpoint(folder)), whole)
            finished += 1


def test_a_full_disk(start, whole, tmp_path):
    """The checkpoint grows when a task's gradients are stored: with little room that is where it stops."""
    child = start(limit=600_000)
    child.join()
    assert child.exitcode == 3
    stopped = position(tmp_path)
    assert 0 < stopped < whole["position"]["done"]
    assert not list(tmp_path.glob(".*.partial"))
    child = start()
    child.join()
    assert child.exitcode == 0
    assert same(final_state(Checkpoint(tmp_path)), whole)


@pytest.mark.parametrize("files", [SLOTS[:1], SLOTS[1:], SLOTS])
def test_checkpoints_cut_short(start, whole, tmp_path, files):
    child = start()
    wait_until(lambda: all((tmp_path / slot).exists() for slot in SLOTS))
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    for slot in files:
        os.truncate(tmp_path / slot, (tmp_path / slot).stat().st_size // 2)
    damaged = Checkpoint(tmp_path).load()
    assert damaged.damaged
    assert (damaged.state is None) == (files == SLOTS)
    child = start()
    child.join()
    assert child.exitcode == 0
    assert same(final_state(Checkpoint(tmp_path)), whole)


class TestTogether:
    """Several processes at the same runs."""

    def test_a_run_that_is_held_is_refused(self, tmp_path):
        runner = Runner(store=Store(tmp_path), device=CPU)
        with runner.store.folder(RUN).claim(), pytest.raises(HeldError, match="held by process"):
            dataclasses.replace(runner, wait=False).do([RUN])

    def test_two_share_the_runs_and_both_have_all_the_results(self, processes, tmp_path, shared_cache):
        queue = processes.SimpleQueue()
        pair = [processes.Process(target=do_all, args=(tmp_path, shared_cache, queue)) for _ in range(2)]
        for child in pair:
            child.start()
        for child in pair:
            child.join()
            assert child.exitcode == 0
        first, second = queue.get(), queue.get()
        assert first["results"] == second["results"]
        done = [first["done"], second["done"]]
        assert sum(done) == len(first["results"]) == 4

    def test_when_the_other_dies_its_run_is_taken_over(self, processes, tmp_path, shared_cache):
        runner = Runner(store=Store(tmp_path), device=CPU)
        child = processes.Process(target=hold, args=(tmp_path, shared_cache))
        child.start()
        lock = runner.store.folder(RUN).path / "lock"
        wait_until(lambda: lock.exists() and lock.stat().st_size)
        said = []

        def say(sentence):
            said.append(sentence)
            os.kill(child.pid, signal.SIGKILL)

        [result] = dataclasses.replace(runner, notice=say).do([RUN])
        child.join()
        assert result.status == "finished"
        assert "is being done elsewhere; waiting for it" in said[0]


def do_all(root, cache, queue):
    """In another process: four runs, and how many of them this process did."""
    os.environ["FOPNG_CACHE"] = str(cache)
    torch.set_num_threads(1)
    done = []

    class Counter:
        def observe(self, event):
            done.append(type(event).__name__)

    request = configurations(
        benchmark="split-digits", methods=["sgd"], seeds=range(4), epochs=1, assignments=["tasks=2"]
    )
    results = Runner(store=Store(root), device=CPU, observers=[Counter()], engine="single").do(request)
    queue.put({"done": done.count("RunEnded"), "results": [result.as_dict() for result in results]})


def hold(root, cache):
    os.environ["FOPNG_CACHE"] = str(cache)
    with Store(root).folder(RUN).claim():
        time.sleep(60)


COMMAND = ("run", "split-digits", "fopng", "--epochs", "15", "--set", "tasks=2", "--seeds", "1", "--json")


def begin(out, *more):
    """The command line in a real process."""
    command = [sys.executable, "-m", "fopng", *COMMAND, "--out", str(out), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process):
    """What the command prints, when it ends well."""
    out, err = process.communicate()
    assert process.returncode == 0, err
    return numbers_of(out)


def stop(process, out, number):
    """Stop a command by a signal in the middle of its work."""
    wait_until(lambda: any('"step"' in log.read_text() for log in out.rglob("log.jsonl")))
    process.send_signal(number)
    said, err = process.communicate()
    assert (process.returncode, said) == (128 + number, "")
    assert "The same command goes on from there." in err
    assert "Traceback" not in err
    assert list(out.rglob("checkpoint.*"))


def starts(log):
    """From which step a run was begun each time."""
    return [line["done"] for line in read_log(log) if line["event"] == "run started"]


@pytest.fixture(scope="module")
def expected(tmp_path_factory, session_cache):
    """What the command says when nothing happens to it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FOPNG_CACHE", str(session_cache))
        return finish(begin(tmp_path_factory.mktemp("command")))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_says_how_to_go_on(tmp_path, expected, number):
    stop(begin(tmp_path), tmp_path, number)
    assert finish(begin(tmp_path)) == expected
    [log] = tmp_path.rglob("log.jsonl")
    assert [done > 0 for done in starts(log)] == [False, True]


def test_two_commands_at_once(tmp_path, expected):
    pair = [begin(tmp_path) for _ in range(2)]
    said = [process.communicate() for process in pair]
    assert [process.returncode for process in pair] == [0, 0]
    assert [numbers_of(out) for out, _ in said] == [expected, expected]
    assert sum("is being done elsewhere" in err for _, err in said) <= 1


def test_stopping_several_processes(tmp_path, expected):
    several = ("--seeds", "2", "--jobs", "2")
    stop(begin(tmp_path, *several), tmp_path, signal.SIGTERM)
    assert finish(begin(tmp_path, *several))[:1] == expected
    assert any(len(found) == 2 and found[1] > 0 for found in map(starts, tmp_path.rglob("log.jsonl")))


def numbers_of(text):
    costs = ("seconds", "seconds_by_phase", "peak_memory_bytes", "environment")
    return [{name: value for name, value in each.items() if name not in costs} for each in json.loads(text)]
