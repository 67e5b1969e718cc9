"""Groups on a real Ray, of several nodes on this machine: workers, nodes and drivers are killed; nothing is lost or done twice."""

import contextlib
import dataclasses
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from fopng.lab.engine.observers import read_log
from fopng.lab.runs.request import configurations
from fopng.lab.runs.store import Store
from fopng.lab.schedule.ray_cluster import LOOPBACK, QUIET, import_ray
from fopng.lab.schedule.runner import Runner
from fopng.lab.schedule.view import View
from fopng.lab.storage import locks
from processes import PATIENCE, command_of, descendants, is_running, state_of, wait_until
from small_runs import CPU

if importlib.util.find_spec("ray") is None:
    pytest.skip("Ray is not installed", allow_module_level=True)

METHODS = ("sgd", "fopng", "ewc")


def wanted():
    """Three groups of two runs, or fewer of more."""
    return configurations(benchmark="split-digits", methods=METHODS, seeds=range(2), epochs=15, assignments=["tasks=2"])


def measured(result):
    names = ("config", "accuracy", "initial_accuracy", "accuracy_before", "status")
    return {name: getattr(result, name) for name in names}


@pytest.fixture(scope="module")
def local(session_cache, tmp_path_factory):
    """The same runs by the local engine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FOPNG_CACHE", str(session_cache))
        shop = Runner(store=Store(tmp_path_factory.mktemp("local")), device=CPU)
        return {result.config.key: measured(result) for result in shop.do(wanted())}


@pytest.fixture(scope="module")
def folder():
    """A short path for temporary files: Ray's sockets lie below it, and workers leave their numbers in it."""
    path = Path(tempfile.mkdtemp(prefix="fopng"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster(folder, session_cache):
    """A head without room for groups, to which a test adds nodes."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (QUIET | LOOPBACK | {"TMPDIR": str(folder), "FOPNG_CACHE": str(session_cache)}).items():
            patch.setenv(name, value)
        patch.setattr(tempfile, "tempdir", None)
        ray = import_ray({})
        from ray.cluster_utils import Cluster

        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        yield made
        ray.shutdown()
        made.shutdown()


class Watcher(View):
    """Lets something happen each time that it is told how things stand."""

    def __init__(self, happens):
        self.tally = happens


@pytest.fixture
def runner(cluster, tmp_path):
    """Runs on the cluster, with this process as the driver."""
    yield Runner(store=Store(tmp_path / "runs"), device=CPU, engine="ray", address=cluster.address, save_seconds=0.2)
    import_ray({}).shutdown()


def workers_at_work(root):
    """The processes that hold runs at the moment."""
    holders = [locks._holder(path) for path in root.rglob("lock")]
    return {holder[0] for holder in holders if holder is not None and is_running(holder[0])} - {os.getpid()}


def hold_at_work(root):
    """Stop a worker in the middle of a group, so that it cannot end before what happens next; None if there is none."""
    for worker in workers_at_work(root):
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGSTOP)
            wait_until(lambda: state_of(worker) in "TZ")  # noqa: B023
            if worker in workers_at_work(root):
                return worker
            os.kill(worker, signal.SIGCONT)
    return None


def node_of(worker, nodes):
    """The node that a worker belongs to."""
    return next(node for node in nodes if worker in descendants(node.all_processes["raylet"][0].process.pid))


def test_a_worker_and_a_node_are_killed(cluster, runner, local, tmp_path):
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    accidents, told = [], []

    def happens(tally):
        """First a worker is killed; when its loss was noticed, a node on which another is at work."""
        if len(told) < len(accidents) or len(accidents) == 2 or (worker := hold_at_work(tmp_path)) is None:
            return
        if accidents:
            cluster.remove_node(node_of(worker, nodes), allow_graceful=False)
        os.kill(worker, signal.SIGKILL)
        accidents.append("node" if accidents else "worker")

    configs = wanted()
    results = dataclasses.replace(runner, view=Watcher(happens), notice=told.append).do(configs)
    assert accidents == ["worker", "node"]
    assert all("the worker was lost" in sentence for sentence in told if "is being done elsewhere" not in sentence)
    assert [measured(result) for result in results] == [local[config.key] for config in configs]
    assert finished_once(tmp_path, configs)
    assert list(tmp_path.rglob("lock")) == []
    cluster.remove_node(next(node for node in nodes if node in cluster.worker_nodes))


def finished_once(root, configs):
    """Whether the log of each run ends once, however often it was begun."""
    logs = [read_log(Store(root / "runs").folder(config).log) for config in configs]
    return all([line["event"] for line in log].count("run ended") == 1 for log in logs)


@pytest.fixture
def fopng(folder, session_cache, tmp_path):
    """Start the command line as a process of its own, as the driver of a cluster."""
    own = {"OMP_NUM_THREADS": "1", "TMPDIR": str(folder), "FOPNG_CACHE": str(session_cache)}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | own
    processes = []

    def start(*arguments):
        command = [sys.executable, "-m", "fopng", *arguments, "--engine", "ray"]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # The cluster of these tests is one that only drivers on the loopback address can reach.
            env=environment | (LOOPBACK if "--address" in arguments else {}),
            cwd=tmp_path,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()


def wait_for(process, root, name):
    """Until a file of this name is somewhere below a folder, or the process has ended."""
    wait_until(lambda: list(root.rglob(name)) or process.poll() is not None)


def test_a_driver_is_killed_and_one_is_stopped_and_the_next_goes_on(cluster, fopng, local, tmp_path):
    """With one worker there are groups done, under way and waiting when it happens."""
    node = cluster.add_node(num_cpus=1)
    asked = ("compare", "split-digits", *METHODS, "--seeds", "2", "--epochs", "15", "--set", "tasks=2", "--json")
    first = fopng(*asked, "--address", cluster.address)
    wait_for(first, tmp_path, "result.json")
    first.kill()
    first.communicate(timeout=PATIENCE)
    there = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("result.json")}
    assert 0 < len(there) < 6
    wait_until(lambda: not workers_at_work(tmp_path))
    second = fopng(*asked, "--address", cluster.address)
    wait_until(lambda: workers_at_work(tmp_path) or second.poll() is not None)
    second.send_signal(signal.SIGINT)
    _, err = second.communicate(timeout=PATIENCE)
    assert second.returncode == 130, (second.returncode, err)
    assert "The same command goes on from there." in err
    assert workers_at_work(tmp_path) == set()
    third = fopng(*asked, "--address", cluster.address)
    out, err = third.communicate(timeout=PATIENCE)
    assert third.returncode == 0, err
    found = Store(tmp_path / "runs").results()
    assert {result.config.key: measured(result) for result in found} == local
    assert {path: path.stat().st_mtime_ns for path in there} == there
    assert len(json.loads(out)) == 6
    cluster.remove_node(node)


POISON = """
from fopng.lab.benchmarks import find_benchmark

def stream(seed, validation):
    if seed == 1:
        raise RuntimeError("no such luck")
    return find_benchmark("split-digits").build(seed=seed, validation=validation)
"""


def test_nobody_at_the_address(fopng):
    process = fopng("run", "split-digits", "sgd", "--address", "127.0.0.1:1")
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert "Expected a Ray cluster at 127.0.0.1:1, got:" in err
    assert "ray start --head" in err


def test_a_poisoned_run_on_this_machine_alone(fopng, tmp_path):
    """A function of the user's own reaches the workers, and what it raises comes home; nobody else can reach this Ray."""
    (tmp_path / "mine.py").write_text(POISON)
    process = fopng("run", "mine:stream", "sgd", "--seeds", "3", "--epochs", "1", "--json")
    wait_for(process, tmp_path, "result.json")
    started = descendants(process.pid)
    heard_at = {address for child in started for address in listening(child)}
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, err
    assert out == ""
    assert "seed 1 failed 3 times and is left out: RuntimeError: no such luck" in err
    assert "Traceback" not in err
    assert "groups: " in err
    assert sorted(result.config.seed for result in Store(tmp_path / "runs").results()) == [0, 2]
    [log] = [path for path in tmp_path.rglob("log.jsonl") if not (path.parent / "result.json").exists()]
    lines = list(read_log(log))
    assert [line["event"] for line in lines] == ["failed"] * 3
    assert "no such luck" in lines[-1]["traceback"]
    assert heard_at != set()
    assert heard_at <= LOOPBACK_ADDRESSES
    assert_gone(started)


def test_the_driver_alone_is_killed_and_takes_its_ray_along(fopng, tmp_path):
    process = fopng("run", "split-digits", "sgd", "--epochs", "1000")
    wait_for(process, tmp_path, "log.jsonl")
    started = descendants(process.pid)
    process.kill()
    process.communicate(timeout=PATIENCE)
    assert len(started) > 2
    assert_gone(started)


LOOPBACK_ADDRESSES = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
"""127.0.0.1 and ::1, as the system writes them."""


def listening(process):
    """The addresses that a process listens at."""
    sockets = set()
    for path in Path(f"/proc/{process}/fd").glob("*"):
        with contextlib.suppress(OSError):
            sockets.add(os.readlink(path))
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                yield fields[1].partition(":")[0]


def assert_gone(processes):
    """They end within half a minute; Ray's own agents look for their master for a minute more."""
    wait_until(lambda: not any(is_running(one) and "Agent" not in command_of(one) for one in processes), 30)
