"""Which settings are chosen, and what is said about it."""

import itertools
import math

import numpy as np
import pytest

from fopng.lab.sweep import Rule, respond
from sweep_runs import held_out

PAPERS = Rule(first_task_at_least=0.9)


def grid(accuracies, **changes):
    """Runs of one seed or more for each learning rate: `{rate: [accuracy of seed 0, ...]}`."""
    return [
        held_out(accuracy, seed=seed, settings={"lr": rate}, **changes)
        for rate, seeds in accuracies.items()
        for seed, accuracy in enumerate(seeds)
    ]


def chosen(response):
    return None if response.chosen is None else response.chosen.settings["lr"]


def test_the_choice_is_that_of_a_plain_search():
    random = np.random.default_rng(0)
    for _ in range(20):
        table = {float(rate): list(random.uniform(size=3)) for rate in random.uniform(size=5)}
        response = respond(grid(table), Rule())
        expected = max(table, key=lambda rate: sum(table[rate]) / 3)
        assert chosen(response) == expected
        assert response.chosen.accuracy.mean == pytest.approx(sum(table[expected]) / 3)
        assert [point.settings["lr"] for point in response.points] == sorted(table)


LATE = [held_out(0.99, first=first, seed=seed, settings={"lr": 0.2}) for seed, first in enumerate([0.95, 0.85])]
"""With one of two seeds the first task was not learnt."""


@pytest.mark.parametrize(
    ("runs", "rule", "why"),
    [
        (grid({0.1: [0.5, 0.5], 0.2: [0.9, None]}), Rule(), "diverged in 1 of 2 runs"),
        (grid({0.1: [0.5, 0.5], 0.2: [0.9]}), Rule(), "1 of 2 runs are there"),
        ([*grid({0.1: [0.8]}, first=0.9), *grid({0.2: [0.99]}, first=0.89)], PAPERS, "first task below 90 %"),
        ([*grid({0.1: [0.8, 0.8]}), *LATE], PAPERS, "first task below 90 %"),
    ],
    ids=["diverged", "a seed is missing", "learnt nothing", "one seed learnt nothing"],
)
def test_the_better_point_is_refused(runs, rule, why):
    response = respond(runs, rule)
    assert (chosen(response), response.points[1].refused) == (0.1, why)
    assert response.notes[0] == f"1 of 2 points refused: {why}."


def test_all_refused():
    response = respond(grid({0.1: [None], 0.2: [0.8]}, first=0.5), PAPERS)
    assert response.chosen is None
    assert response.notes == (
        "1 of 2 points refused: diverged in 1 of 1 runs.",
        "1 of 2 points refused: first task below 90 %.",
        "Nothing could be chosen: every point was refused. Widen the grid, or change the rule.",
    )


@pytest.mark.parametrize("order", list(itertools.permutations([0.1, 0.2, 0.4, 0.8]))[::5])
def test_a_tie_goes_to_the_smaller_settings_whatever_the_order(order):
    values = {0.1: [0.5], 0.2: [0.75], 0.4: [0.75], 0.8: [0.1]}
    response = respond(grid({rate: values[rate] for rate in order}), Rule())
    assert chosen(response) == 0.2
    assert response.notes == ("2 points tie at 75.00 %; the one with the smaller settings is taken.",)


@pytest.mark.parametrize(
    ("accuracies", "notes"),
    [
        ({0.1: [0.1], 0.2: [0.2], 0.4: [0.3]}, ("lr = 0.4 is the largest that was tried.",)),
        ({0.1: [0.3], 0.2: [0.2], 0.4: [0.1]}, ("lr = 0.1 is the smallest that was tried.",)),
        ({0.1: [0.3], 0.2: [0.2]}, ()),
        ({0.0: [0.3], 0.1: [0.2], 0.2: [0.1]}, ()),
    ],
    ids=["largest", "smallest", "of two", "nothing lies beyond zero"],
)
def test_a_choice_at_the_edge_is_said(accuracies, notes):
    assert respond(grid(accuracies), Rule()).notes == notes


def test_anything_that_differs_is_a_setting():
    runs = [held_out(0.5 + epochs / 10, epochs=epochs, settings={"lr": 0.1}) for epochs in (1, 2)]
    response = respond(runs, Rule(), names=["lr"])
    assert dict(response.chosen.settings) == {"epochs": 2, "lr": 0.1}
    assert response.names == ["epochs"]


def test_the_profile_takes_the_best_of_what_else_varies():
    accuracies = {(0.1, 1e-3): 0.5, (0.1, 1e-2): 0.7, (0.2, 1e-3): 0.6, (0.2, 1e-2): 0.4}
    runs = [held_out(found, settings={"lr": lr, "damping": damping}) for (lr, damping), found in accuracies.items()]
    profile = [(lr, p.accuracy.mean, p.settings["damping"]) for lr, p in respond(runs, Rule()).profile("lr")]
    assert profile == [(0.1, 0.7, 1e-2), (0.2, 0.6, 1e-3)]


def test_json_has_no_numbers_that_are_none():
    [point] = respond(grid({0.1: [None]}), Rule()).as_dict()["points"]
    assert point["validation_accuracy"]["mean"] is None
    assert not any(isinstance(value, float) and math.isnan(value) for value in point.values())
