"""Ctrl-C and a polite kill: whenever they come, one line says so, and the same command goes on."""

import json
import os
import signal
import subprocess
import sys

import pytest

COMMAND = ("run", "split-digits", "ogd", "--engine", "single", "--epochs", "2", "--set", "tasks=2", "--json")

PROGRAM = """
import os, signal, sys
place, times, number = sys.argv[1], *map(int, sys.argv[2:4])
sys.argv[1:] = sys.argv[4:]

def stop(*_, **__):
    for _ in range(times):
        os.kill(os.getpid(), number)

class AtImport:
    def find_spec(self, name, path=None, target=None):
        if name == place:
            sys.meta_path.remove(self)
            stop()

def before(owner, name):
    real = getattr(owner, name)
    def stopping(*arguments, **words):
        setattr(owner, name, real)
        stop()
        return real(*arguments, **words)
    setattr(owner, name, stopping)

if place.startswith("in "):
    from pkgutil import resolve_name
    _, owner, name = place.split()
    before(resolve_name(owner), name)
else:
    sys.meta_path.insert(0, AtImport())
from fopng.__main__ import main
main()
"""

OPTIMIZER = "in fopng.optim.optimizer:ContinualOptimizer"
STARTING = [
    ("typer", signal.SIGINT),
    ("fopng.cli.commands", signal.SIGTERM),
    ("torch.nn", signal.SIGINT),
    ("fopng.lab.engine", signal.SIGTERM),
]
WORKING = [
    (f"{OPTIMIZER} begin_task", 1, signal.SIGINT),
    (f"{OPTIMIZER} step", 1, signal.SIGTERM),
    (f"{OPTIMIZER} step", 2, signal.SIGINT),
    (f"{OPTIMIZER} end_task", 1, signal.SIGINT),
    ("in fopng.cli.results show_results", 1, signal.SIGTERM),
]


@pytest.fixture
def started(tmp_path, session_cache):
    """Run the command, with signals to itself at a place."""
    environment = os.environ | {"FOPNG_CACHE": str(session_cache), "PYTHONPATH": ":".join(sys.path)}

    def run(place, times=1, number=signal.SIGINT):
        program = [sys.executable, "-c", PROGRAM, place, str(times), str(int(number)), *COMMAND, "--out", str(tmp_path)]
        return subprocess.run(program, capture_output=True, text=True, env=environment, check=False)

    return run


@pytest.fixture(scope="module")
def expected(tmp_path_factory, session_cache):
    environment = os.environ | {"FOPNG_CACHE": str(session_cache), "PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-m", "fopng", *COMMAND, "--out", str(tmp_path_factory.mktemp("runs"))]
    return numbers(subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout)


def numbers(printed):
    [found] = json.loads(printed)
    return [found[name] for name in ("key", "status", "accuracy", "initial_accuracy", "removed_fraction")]


def stops(done, number):
    assert (done.returncode, done.stdout) == (128 + number, ""), done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("fopng: Stopped")


@pytest.mark.parametrize(("place", "number"), STARTING)
def test_a_signal_before_the_run_has_begun_is_told(started, place, number):
    stops(started(place, number=number), number)


@pytest.mark.parametrize(("place", "times", "number"), WORKING)
def test_a_run_that_was_stopped_goes_on(started, expected, place, times, number):
    """A second signal comes at once after the first."""
    stops(started(place, times, number), number)
    again = started("nowhere")
    assert again.returncode == 0, again.stderr
    assert numbers(again.stdout) == expected
