"""The files under reproduction/experiments/: every one can be read, and the paper's grids are the paper's."""

import dataclasses
import re
from pathlib import Path

import pytest

from fopng.lab.runs.hyperparameters import paper_methods
from fopng.lab.sweep import read_sweep
from fopng.optim.registry import METHODS

FOLDER = Path(__file__).parents[2] / "reproduction" / "experiments"
PAPER = Path(__file__).parents[3] / "shared" / "paper" / "fopng.tex"
FILES = sorted(FOLDER.glob("*.toml"))


def test_they_are_there():
    assert {file.stem for file in FILES} >= {"paper-mnist", "paper-cifar", "mnist", "methods"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_setting_exists(file):
    sweep = read_sweep(file)
    assert set(sweep.stages) <= set(METHODS)
    assert sweep.size() > 0


EFFORTS = {"methods": 18, "cifar": 6, "stream-20": 6, "stream-50": 6}


@pytest.mark.parametrize("name", EFFORTS)
def test_every_method_has_the_same_effort(name):
    sweep = read_sweep(FOLDER / f"{name}.toml")
    assert {sum(map(len, stages)) for stages in sweep.stages.values()} == {EFFORTS[name]}


def test_the_streams_differ_in_their_length_alone():
    short, long = (read_sweep(FOLDER / f"stream-{tasks}.toml") for tasks in (20, 50))
    assert (short.benchmark_settings, long.benchmark_settings) == ({"tasks": 20}, {"tasks": 50})
    assert dataclasses.replace(long, name=short.name, benchmark_settings=short.benchmark_settings) == short


@pytest.mark.parametrize("name", ["methods", "cifar"])
def test_all_of_the_papers_methods_are_tuned(name):
    sweep = read_sweep(FOLDER / f"{name}.toml")
    ours = {"sgd", "adam", "ewc", "fng", "ogd", "fopng", "fopng-prefisher", "ong", "natural-ogd"}
    assert set(sweep.stages) >= ours


def test_the_papers_methods_share_their_runs():
    ours, everyones = (read_sweep(FOLDER / f"{name}.toml") for name in ("mnist", "methods"))
    assert set(ours.stages) == set(paper_methods())
    assert {method: everyones.stages[method] for method in ours.stages} == dict(ours.stages)
    assert dataclasses.replace(everyones, name=ours.name, stages=ours.stages) == ours


@pytest.mark.parametrize("name", ["paper-mnist", "paper-cifar"])
def test_the_papers_grids(name):
    if not PAPER.exists():
        pytest.skip("the paper's source is not beside this repository")
    tex = PAPER.read_text(encoding="utf-8")
    rates, strengths, dampings = (
        tuple(float(value) for value in re.search(pattern, tex).group(1).split(","))
        for pattern in (
            r"For the learning rate, we swept over \[(.*?)\]",
            r"For EWC, the \$\\lambda\$ regularization coefficient was swept over \[(.*?)\]",
            r"FOPNG-PreFisher, the \$\\lambda\$ regularization coefficient was swept over \[(.*?)\]",
        )
    )
    stages = read_sweep(FOLDER / f"{name}.toml").stages
    assert {method: found[0].lists["lr"] for method, found in stages.items()} == dict.fromkeys(stages, rates)
    assert stages["ewc"][0].lists["strength"] == strengths
    for method in ("fng", "fopng", "fopng-prefisher"):
        assert stages[method][0].lists["damping"] == (1e-3,)
        assert stages[method][1].lists == {"damping": dampings}


def test_the_papers_filter_is_for_mnist():
    filters = {
        name: read_sweep(FOLDER / f"{name}.toml").rule.first_task_at_least for name in ("paper-mnist", "paper-cifar")
    }
    assert filters == {"paper-mnist": 0.9, "paper-cifar": 0.0}
