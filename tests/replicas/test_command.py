"""Runs side by side from the command line."""

import io
import json

import pytest
from rich.console import Console

from fopng.lab.engine.observers import ProgressLines, RunEnded, RunStarted, StepDone, TaskStarted

pytestmark = pytest.mark.usefixtures("shared_cache")

COSTS = ("seconds", "seconds_by_phase", "peak_memory_bytes", "environment")


@pytest.fixture
def fopng(tmp_path, monkeypatch, command_line):
    """The command line, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return command_line


def results(text):
    return [{name: value for name, value in each.items() if name not in COSTS} for each in json.loads(text)]


# to the last bit of a sum these depend on the order of its terms
ROUNDED = ("removed_fraction", "measured", "lost", "really_lost", "really_lost_worst")

RUN = ("split-digits", "--seeds", "2", "--epochs", "1", "--set", "tasks=2", "--device", "cpu", "--json")


def test_run_gives_the_same_with_every_engine(fopng):
    found = {}
    for engine in ("single", "replicas", "auto"):
        code, out, err = fopng("run", RUN[0], "fopng", *RUN[1:], "--engine", engine, "--out", engine)
        assert code == 0
        found[engine] = [{n: v for n, v in each.items() if n not in ROUNDED} for each in results(out)]
        assert ("runs 1-2/2, split-digits fopng seed 0 and 1 more" in err) == (engine != "single")
    assert found["single"] == found["replicas"] == found["auto"]


def test_compare_does_each_method_in_a_wave(fopng):
    code, out, err = fopng("compare", *RUN[:1], "sgd", "ogd", *RUN[1:], "--engine", "replicas")
    assert code == 0
    assert [(each["method"], each["seed"]) for each in results(out)] == [("sgd", 0), ("ogd", 0), ("sgd", 1), ("ogd", 1)]
    assert "runs 1-2/4" in err
    assert "runs 3-4/4" in err


def test_what_cannot_stand_side_by_side_is_one_line(fopng):
    code, out, err = fopng("run", RUN[0], "joint", *RUN[1:], "--engine", "replicas")
    assert code == 0
    assert len(results(out)) == 2
    assert [line for line in err.splitlines() if line.startswith("fopng:")] == [
        "fopng: Expected one task at a time, got several together (joint training). The runs are done one by one."
    ]


def test_the_precision_is_part_of_the_configuration(fopng):
    assert fopng("run", RUN[0], "sgd", *RUN[1:], "--precision", "float64", "--engine", "replicas")[0] == 0
    _, _, err = fopng("run", RUN[0], "sgd", *RUN[1:], "--engine", "replicas")
    assert "runs 1-2/2" in err
    assert fopng("run", RUN[0], "sgd", *RUN[1:], "--precision", "half")[0] == 2


def test_an_engine_that_there_is_not(fopng):
    code, _, err = fopng("run", RUN[0], "sgd", *RUN[1:], "--engine", "both")
    assert code == 2
    assert "'both'" in err


def test_a_wave_that_did_not_fit_is_counted_once():
    console = Console(file=(file := io.StringIO()), width=80)
    progress = ProgressLines(console, runs=4)
    for runs, outcome in [(4, "failed"), (2, "finished"), (2, "finished")]:
        for event in (
            RunStarted("a", 1, 5, 0, {}, runs),
            TaskStarted(0),
            StepDone(0, 0, 5, dict),
            RunEnded(outcome, 1),
        ):
            progress.observe(event)
    assert [line.split(",")[0] for line in file.getvalue().splitlines()] == ["runs 1-4/4", "runs 1-2/4", "runs 3-4/4"]
