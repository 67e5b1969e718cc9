"""Optuna's samplers, with the real library."""

from typing import get_args

import pytest

from fopng.lab.runs.findings import Response
from fopng.lab.runs.settings import method_settings
from fopng.lab.sweep import Rule, parse_sweep, respond
from fopng.lab.sweep.search import SampledSearch, Sampler, Sampling
from fopng.lab.sweep.space import Stage
from fopng.optim.registry import METHODS
from sweep_runs import held_out

pytest.importorskip("optuna")

SPACE = {
    "lr": {"low": 1e-4, "high": 1.0, "log": True},
    "gradients_per_task": {"low": 1, "high": 9},
    "labels": ["observed", "sampled"],
}


def accuracy(choice):
    return 0.9 - abs(choice["lr"] - 0.03)


def drawn(sampling, refuse=lambda choice: False, space=SPACE):
    """Every choice that a search asks for, in its batches."""
    search, runs, batches = SampledSearch(Stage.read(space, method_settings(METHODS["fopng"]), "x"), sampling), [], []
    response: Response | None = None
    while choices := search.ask(response):
        batches.append([dict(choice) for choice in choices])
        runs += [held_out(None if refuse(choice) else accuracy(choice), settings=choice) for choice in choices]
        response = respond(runs, Rule(), list(space))
    return batches


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize("sampler", get_args(Sampler))
def test_every_sampler_draws_inside_the_space(sampler):
    batches = drawn(Sampling(sampler=sampler, trials=7, at_once=3))
    assert [len(batch) for batch in batches] == [3, 3, 1]
    for choice in (choice for batch in batches for choice in batch):
        assert 1e-4 <= choice["lr"] <= 1
        assert choice["gradients_per_task"] in range(1, 10)
        assert choice["labels"] in ("observed", "sampled")


def test_the_same_seed_asks_for_the_same_settings_again():
    first, again, other = (drawn(Sampling(trials=12, at_once=4, seed=seed)) for seed in (1, 1, 2))
    assert first == again != other


def test_it_learns_from_what_it_was_told():
    one = {"lr": SPACE["lr"]}
    batches = drawn(Sampling(trials=40, at_once=5), space=one)
    early, late = ([accuracy(choice) for batch in part for choice in batch] for part in (batches[:2], batches[-3:]))
    assert sum(late) / len(late) > sum(early) / len(early)


def test_a_refused_point_is_no_accuracy():
    assert len(drawn(Sampling(trials=6, at_once=2), refuse=lambda choice: choice["lr"] > 0.01)) == 3


def test_one_value_is_fixed():
    batches = drawn(Sampling(trials=3), space={"lr": SPACE["lr"], "damping": 0.5})
    assert {choice["damping"] for batch in batches for choice in batch} == {0.5}


def test_a_file_with_a_search():
    members = {"benchmarks": ["split-digits"], "validation": {"seeds": [1]}, "methods": {"sgd": {"lr": SPACE["lr"]}}}
    found = parse_sweep({**members, "search": {"trials": 4, "at_once": 2, "sampler": "random"}}, "mine")
    assert isinstance(found.search("sgd"), SampledSearch)
    assert found.size() == 4
