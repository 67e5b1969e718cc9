"""The command that a report gives makes the very runs that it stands beside."""

import shlex
import sys

import pytest

import fopng.cli.run
from fopng.cli import main
from fopng.lab.runs.command import command_of
from fopng.lab.runs.request import configurations
from fopng.optim.registry import METHODS
from sample_runs import config


@pytest.fixture
def asked_for(shared_cache, monkeypatch):
    """The configurations that a command would run, without running them."""

    def configurations(command):
        asked = []
        monkeypatch.setattr(fopng.cli.run, "do_runs", lambda configs, *how, **more: asked.extend(configs) or [])
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        with pytest.raises(SystemExit) as caught:
            main()
        assert caught.value.code == 0
        return asked

    return configurations


REQUESTS = [
    *({"methods": [method]} for method in METHODS),
    {"methods": ["fopng"], "protocol": "printed"},
    {"methods": ["fopng"], "assignments": ["fisher_samples=none", "projection=orthogonal", "lr=0.12345678901234567"]},
    {"methods": ["sgd"], "benchmark": "rotated-digits", "assignments": ["angles=0,22.5,45"]},
    {"methods": ["sgd"], "benchmark": "permuted-digits", "scenario": "class", "validation": True, "epochs": 3},
    {"methods": ["sgd"], "assignments": ["order=3,1,2,0"], "first_task_lr": 0.5, "precision": "float64"},
    {"methods": ["sgd"], "assignments": ["shuffled=yes"], "model": "mlp", "batch_size": 7, "seeds": [5]},
    {"methods": ["sgd"], "benchmark": "split-mnist", "dataset": "digits", "seeds": [4, 2]},
]


@pytest.mark.parametrize("words", REQUESTS, ids=str)
def test_the_command_makes_the_same_runs(asked_for, words):
    expected = configurations(**{"benchmark": "split-digits", "seeds": [0, 1], **words})
    command = command_of(expected[0], [config.seed for config in expected])
    assert {config.key for config in asked_for(command)} == {config.key for config in expected}


def test_hostile_names_stay_in_one_word():
    name = "a b; rm -rf / $(x) 'y'"
    words = shlex.split(command_of(config(benchmark=name, method=name, settings={name: name}), [0]))
    assert words[:4] == ["fopng", "run", name, name]
    assert f"{name}={name}" in words


def test_a_setting_that_the_benchmark_has_too_names_its_method():
    command = command_of(config(settings={"tasks": 7}), [0])
    assert "fopng.tasks=7" in command
    assert " tasks=3" in command
