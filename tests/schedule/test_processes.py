"""`--jobs`: the same results from several processes, which end with their parent however that ends."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from fopng.lab.runs.request import configurations
from fopng.lab.runs.store import Store
from fopng.lab.schedule.errors import FailedRunsError
from fopng.lab.schedule.runner import Runner
from fopng.lab.schedule.view import View
from processes import PATIENCE, command_of, descendants, is_running, wait_until
from small_runs import CPU

pytestmark = pytest.mark.usefixtures("shared_cache")

COMMAND = ("run", "split-digits", "fopng", "--set", "tasks=2", "--seeds", "2", "--jobs", "2", "--json")


def wanted(**changes):
    words = {"benchmark": "split-digits", "methods": ["sgd"], "seeds": range(3), "epochs": 1, **changes}
    return configurations(**words, assignments=["tasks=2"])


def runner(folder, **more):
    return Runner(store=Store(folder), device=CPU, **more)


def measured(results):
    return [(result.config.key, result.accuracy, result.experiments) for result in results]


class Ended(View):
    def __init__(self):
        self.results = []

    def ended(self, result):
        self.results.append(result)


def test_the_same_results_as_from_one(tmp_path):
    view = Ended()
    found = runner(tmp_path / "two", jobs=2, engine="replicas", view=view).do(wanted(), "sweep/mine")
    assert measured(found) == measured(runner(tmp_path / "one").do(wanted(), "sweep/mine"))
    assert sorted(measured(view.results)) == sorted(measured(found))


def test_a_worker_that_is_killed_is_told_and_what_it_did_is_there(tmp_path, monkeypatch):
    class Kills(View):
        def ended(self, result):
            for child in descendants(os.getpid()):
                if "spawn_main" in command_of(child):
                    os.kill(child, signal.SIGKILL)

    with pytest.raises(FailedRunsError, match="Lower --jobs; the same command goes on"):
        runner(tmp_path, jobs=2, view=Kills()).do([*wanted(seeds=range(1)), *wanted(seeds=range(1, 5), epochs=20)])
    assert len(runner(tmp_path).do(wanted(seeds=range(1)))) == 1


def start(folder, *more):
    command = [sys.executable, "-m", "fopng", *COMMAND, "--out", str(folder), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def steps_under_way(folder):
    return [log for log in folder.rglob("log.jsonl") if '"step"' in log.read_text()]


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_workers_end_with_a_parent_that_is_killed_and_what_they_did_is_saved(tmp_path):
    process = start(tmp_path, "--epochs", "200")
    wait_until(lambda: len(steps_under_way(tmp_path)) == 2)
    workers = descendants(process.pid)
    process.kill()
    process.communicate(timeout=PATIENCE)  # which holds until nobody has its streams
    wait_until(lambda: not any(is_running(worker) for worker in workers))
    left = contents(tmp_path)
    assert sum(path.name.startswith("checkpoint.") for path in left) >= 2
    time.sleep(0.5)
    assert contents(tmp_path) == left
    # Nothing keeps the runs: a command that does them one by one takes them up.
    second = start(tmp_path, "--epochs", "200", "--jobs", "1", "--engine", "single")
    wait_until(lambda: any(starts_of(log)[1:] for log in steps_under_way(tmp_path)))
    second.kill()
    second.communicate()
    assert all(done > 0 for log in steps_under_way(tmp_path) for done in starts_of(log)[1:])


def test_a_parent_that_is_killed_while_workers_start_leaves_none(tmp_path):
    process = start(tmp_path, "--epochs", "200")
    wait_until(lambda: any("spawn_main" in command_of(child) for child in descendants(process.pid)))
    workers = descendants(process.pid)
    process.kill()
    process.communicate(timeout=PATIENCE)  # which holds until nobody has its streams
    wait_until(lambda: not any(is_running(worker) for worker in workers))


def starts_of(log):
    lines = [json.loads(line) for line in log.read_text().splitlines() if '"run started"' in line]
    return [line["done"] for line in lines]
