"""Intervals against regions, and how several make one verdict; against SciPy's intervals."""

import math

import numpy as np
import pytest
from scipy import stats

from fopng.lab.report.claims import Verdict
from fopng.lab.runs.scores import Estimate
from reproduction.claims.check import POSITIVE, Check, Region, all_of, compare, most_of, within
from sweep_runs import on_test

HOLDS, FAILS, OPEN = Verdict.HOLDS, Verdict.FAILS, Verdict.OPEN


def check(values, region=POSITIVE):
    return Check(words="x", estimate=Estimate.of(values), region=region, runs=())


def test_the_interval_is_scipys():
    values = np.random.default_rng(0).normal(size=5)
    expected = stats.t.interval(0.95, 4, values.mean(), stats.sem(values))
    assert check(list(values)).interval(0.95) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("values", "region", "verdict"),
    [
        ([0.10, 0.11, 0.12], POSITIVE, HOLDS),
        ([-0.10, -0.11, -0.12], POSITIVE, FAILS),
        ([-0.5, 0.1, 0.9], POSITIVE, OPEN),
        ([0.5], POSITIVE, OPEN),
        ([], POSITIVE, OPEN),
        ([0.0, 0.0, 0.0], POSITIVE, OPEN),
        ([0.001, 0.0, -0.001], within(0.01), HOLDS),
        ([0.05, 0.051, 0.049], within(0.01), FAILS),
        ([-0.05, -0.051, -0.049], within(0.01), FAILS),
        ([0.009, 0.011], within(0.01), OPEN),
        ([1.5, 1.51, 1.52], Region(above=1.4, below=1.8), HOLDS),
        ([2.5, 2.51, 2.52], Region(above=1.4, below=1.8), FAILS),
    ],
)
def test_one_check(values, region, verdict):
    assert check(values, region).verdict() is verdict
    assert check(values, region).evidence().verdict is verdict


def test_verdicts_are_wrong_as_seldom_as_they_say():
    """Of differences that are none, about one in forty is called positive, and as many negative."""
    random = np.random.default_rng(1)
    found = [check(list(random.normal(size=5))).verdict() for _ in range(2000)]
    assert found.count(HOLDS) / 2000 == pytest.approx(0.025, abs=0.01)
    assert found.count(FAILS) / 2000 == pytest.approx(0.025, abs=0.01)


def test_all_must_hold():
    good, bad, unsure = check([1, 1.1, 1.2]), check([-1, -1.1, -1.2]), check([-1, 1, 3])
    assert all_of([good, good], complete=True) is HOLDS
    assert all_of([good, good], complete=False) is OPEN
    assert all_of([good, unsure], complete=True) is OPEN
    assert all_of([good, bad], complete=False) is FAILS
    assert all_of([], complete=True) is OPEN


def test_one_failure_among_many_must_be_surer():
    weak = check([-0.1, -1.0, -1.2, -1.7, -0.9])
    assert weak.verdict() is FAILS
    assert all_of([weak], complete=True) is FAILS
    assert all_of([weak] + [check([1, 1.1, 1.2])] * 19, complete=True) is OPEN


@pytest.mark.parametrize(
    ("verdicts", "of", "expected"),
    [
        ([HOLDS, HOLDS, HOLDS, FAILS, FAILS], 5, HOLDS),
        ([HOLDS, HOLDS], 5, OPEN),
        ([HOLDS, HOLDS, HOLDS], 5, HOLDS),
        ([FAILS, FAILS, FAILS], 5, FAILS),
        ([FAILS, FAILS], 4, FAILS),
        ([], 5, OPEN),
    ],
)
def test_most(verdicts, of, expected):
    assert most_of(verdicts, of=of) is expected


def test_a_comparison_is_paired_over_seeds():
    first = [on_test(value, seed=seed) for seed, value in enumerate([0.5, 0.7, 0.9])]
    second = [on_test(value, seed=seed, method="sgd") for seed, value in enumerate([0.4, 0.6, 0.8])]
    accuracies = [{result.config.seed: result.final_accuracy for result in some} for some in (first, second)]
    found = compare("x", (accuracies[0], first), (accuracies[1], second), POSITIVE)
    assert found.estimate.mean == pytest.approx(0.1)
    assert found.verdict() is HOLDS
    assert len(found.runs) == 6


def test_without_an_interval_nothing_is_said():
    low, high = check([0.5]).evidence().low, check([0.5]).evidence().high
    assert math.isnan(low)
    assert math.isnan(high)
    assert check([0.5]).evidence().as_dict()["interval"] == [None, None]
