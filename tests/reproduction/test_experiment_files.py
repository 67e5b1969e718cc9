"""The files under reproduction/experiments/: every one can be read, and the paper's grids are the paper's."""

import dataclasses
import re
from pathlib import Path

import pytest

from fopng.lab.runs.hyperparameters import paper_methods
from fopng.lab.sweep import read_sweep
from fopng.optim.registry import METHODS
from reproduction import FOLDER

PAPER = Path(__file__).parents[3] / "shared" / "paper" / "fopng.tex"
FILES = sorted((FOLDER / "experiments").glob("*.toml"))


def sweep(name):
    return read_sweep(FOLDER / "experiments" / f"{name}.toml")


@pytest.mark.parametrize("name", [file.stem for file in FILES])
def test_every_setting_exists(name):
    assert set(sweep(name).stages) <= set(METHODS)
    assert sweep(name).size() > 0


@pytest.mark.parametrize(("name", "points"), [("methods", 18), ("cifar", 6), ("stream-20", 6), ("stream-50", 6)])
def test_every_method_has_the_same_effort(name, points):
    assert {sum(map(len, stages)) for stages in sweep(name).stages.values()} == {points}


@pytest.mark.parametrize("name", ["methods", "cifar"])
def test_all_of_the_papers_methods_are_tuned(name):
    assert set(sweep(name).stages) >= {*paper_methods(), "ong", "natural-ogd"}


def test_files_that_share_their_runs_differ_in_one_thing():
    short, long = sweep("stream-20"), sweep("stream-50")
    assert (short.benchmark_settings, long.benchmark_settings) == ({"tasks": 20}, {"tasks": 50})
    assert dataclasses.replace(long, name=short.name, benchmark_settings=short.benchmark_settings) == short
    ours, everyones = sweep("mnist"), sweep("methods")
    assert set(ours.stages) == set(paper_methods())
    assert {method: everyones.stages[method] for method in ours.stages} == dict(ours.stages)
    assert dataclasses.replace(everyones, name=ours.name, stages=ours.stages) == ours


@pytest.mark.parametrize(("name", "filtered"), [("paper-mnist", 0.9), ("paper-cifar", 0.0)])
def test_the_papers_grids_and_its_filter(name, filtered):
    assert sweep(name).rule.first_task_at_least == filtered
    if not PAPER.exists():
        pytest.skip("the paper's source is not beside this repository")
    tex = PAPER.read_text(encoding="utf-8")
    rates, strengths, dampings = (
        tuple(float(value) for value in re.search(rf"{words} swept over \[(.*?)\]", tex).group(1).split(","))
        for words in (
            "For the learning rate, we",
            r"For EWC, the \$\\lambda\$ regularization coefficient was",
            r"FOPNG-PreFisher, the \$\\lambda\$ regularization coefficient was",
        )
    )
    stages = sweep(name).stages
    assert {method: found[0].lists["lr"] for method, found in stages.items()} == dict.fromkeys(stages, rates)
    assert stages["ewc"][0].lists["strength"] == strengths
    for method in ("fng", "fopng", "fopng-prefisher"):
        assert stages[method][0].lists["damping"] == (1e-3,)
        assert stages[method][1].lists == {"damping": dampings}
