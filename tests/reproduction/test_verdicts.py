"""Intervals against regions, and how several make one verdict; against SciPy's intervals."""

import numpy as np
import pytest
from scipy import stats

from fopng.lab.runs.findings import final_by_seed
from fopng.lab.runs.scores import Estimate
from reproduction.claims.claim import POSITIVE, all_of, compare, most_of, within
from reproduction.claims.finding import Evidence, Region, Verdict
from sweep_runs import on_test

HOLDS, FAILS, OPEN = Verdict.HOLDS, Verdict.FAILS, Verdict.OPEN
SLOWER = Region(above=1.4, below=1.8)


def evidence(values, region=POSITIVE):
    return Evidence(words="x", estimate=Estimate.of(values), region=region, runs=())


def test_the_interval_is_scipys():
    values = np.random.default_rng(0).normal(size=5)
    expected = stats.t.interval(0.95, 4, values.mean(), stats.sem(values))
    assert evidence(list(values)).interval() == pytest.approx(expected)


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
        ([1.5, 1.51, 1.52], SLOWER, HOLDS),
        ([2.5, 2.51, 2.52], SLOWER, FAILS),
    ],
)
def test_one_number(values, region, verdict):
    assert evidence(values, region).verdict() is verdict


def test_verdicts_are_wrong_as_seldom_as_they_say():
    """Of differences that are none, about one in forty is called positive, and as many negative."""
    random = np.random.default_rng(1)
    found = [evidence(list(random.normal(size=5))).verdict() for _ in range(2000)]
    assert found.count(HOLDS) / 2000 == pytest.approx(0.025, abs=0.01)
    assert found.count(FAILS) / 2000 == pytest.approx(0.025, abs=0.01)


def test_all_must_hold_and_nothing_be_missing():
    good, bad, unsure = evidence([1, 1.1, 1.2]), evidence([-1, -1.1, -1.2]), evidence([-1, 1, 3])
    assert all_of([good, good]) is HOLDS
    assert all_of([good, "missing"]) is OPEN
    assert all_of([good, unsure]) is OPEN
    assert all_of([good, bad, "missing"]) is FAILS
    assert all_of([]) is OPEN


def test_one_failure_among_many_must_be_surer():
    weak = evidence([-0.1, -1.0, -1.2, -1.7, -0.9])
    assert all_of([weak]) is FAILS
    assert all_of([weak, *[evidence([1, 1.1, 1.2])] * 19]) is OPEN


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([HOLDS, HOLDS, HOLDS, FAILS, FAILS], HOLDS),
        ([HOLDS, HOLDS, OPEN, OPEN, OPEN], OPEN),
        ([FAILS, FAILS, FAILS, HOLDS, HOLDS], FAILS),
        ([FAILS, FAILS, OPEN, OPEN], FAILS),
        ([OPEN] * 5, OPEN),
    ],
)
def test_most(verdicts, expected):
    assert most_of(verdicts) is expected


def test_a_comparison_is_paired_over_seeds():
    first = [on_test(value, seed=seed) for seed, value in enumerate([0.5, 0.7, 0.9])]
    second = [on_test(value, seed=seed, method="sgd") for seed, value in enumerate([0.4, 0.6, 0.8])]
    found = compare("x", first, second[::-1], final_by_seed)
    assert found.estimate.mean == pytest.approx(0.1)
    assert found.verdict() is HOLDS
    assert len(found.runs) == 6


def test_without_an_interval_there_is_none_in_json():
    assert evidence([0.5]).as_dict()["interval"] == [None, None]
