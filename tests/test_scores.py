"""The scores against hand-worked numbers, and the intervals against SciPy's."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fopng.lab.runs import scores
from fopng.lab.runs.scores import Estimate

MATRIX = [[0.9, 0.5, 0.4], [0.8, 0.95, 0.6], [0.85, 0.7, 1.0]]
TRIANGLE = [[0.9], [0.8, 0.95], [0.85, 0.7, 1.0]]

fractions = st.floats(0, 1)
matrices = st.integers(2, 6).flatmap(
    lambda tasks: st.lists(st.lists(fractions, min_size=tasks, max_size=tasks), min_size=tasks, max_size=tasks)
)


def test_scores_of_a_matrix_worked_by_hand():
    assert scores.average_accuracies(MATRIX) == pytest.approx([0.9, 0.875, 0.85])
    assert scores.final_average_accuracy(MATRIX) == pytest.approx(0.85)
    assert scores.forgetting(MATRIX) == pytest.approx((0.05 + 0.25) / 2)
    assert scores.backward_transfer(MATRIX) == pytest.approx((-0.05 - 0.25) / 2)
    assert scores.forward_transfer([0.1, 0.5, 0.6], [0.1, 0.2, 0.3]) == pytest.approx((0.3 + 0.3) / 2)
    assert scores.learning_accuracy(MATRIX) == pytest.approx((0.9 + 0.95 + 1.0) / 3)
    assert scores.intransigence(MATRIX, [0.95, 0.97, 0.99]) == pytest.approx((0.05 + 0.02 - 0.01) / 3)


@pytest.mark.parametrize("score", [scores.final_average_accuracy, scores.forgetting, scores.backward_transfer])
def test_tasks_measured_before_they_are_learnt_change_nothing(score):
    assert score(MATRIX) == score(TRIANGLE)


def test_forgetting_is_from_the_best_since_the_task_was_learnt_not_from_its_first_measure():
    assert scores.forgetting([[0.5], [0.9, 1.0], [0.6, 1.0, 1.0]]) == pytest.approx((0.3 + 0.0) / 2)


def test_a_single_task_has_an_accuracy_and_no_forgetting():
    assert scores.final_average_accuracy([[0.7]]) == 0.7
    assert scores.learning_accuracy([[0.7]]) == 0.7
    for undefined in (
        scores.forgetting([[0.7]]),
        scores.backward_transfer([[0.7]]),
        scores.forward_transfer([0.7], [0]),
    ):
        assert math.isnan(undefined)


def test_an_unfinished_run_has_the_averages_so_far_and_no_final_scores():
    rows = MATRIX[:2]
    assert scores.average_accuracies(rows) == pytest.approx([0.9, 0.875])
    finals = [scores.final_average_accuracy, scores.forgetting, scores.backward_transfer, scores.learning_accuracy]
    assert all(math.isnan(final(rows)) for final in finals)
    assert math.isnan(scores.intransigence(rows, [1, 1, 1]))


def test_nothing_measured_at_all():
    assert scores.average_accuracies([]) == []
    assert math.isnan(scores.final_average_accuracy([]))


def test_a_missing_entry_makes_the_scores_that_need_it_undefined_and_no_other():
    rows = [[0.9, None], [None, 0.8]]
    assert scores.average_accuracies(rows)[0] == 0.9
    assert math.isnan(scores.final_average_accuracy(rows))
    assert math.isnan(scores.forgetting(rows))
    assert scores.learning_accuracy(rows) == pytest.approx(0.85)


def test_transfer_without_a_reference_is_undefined_and_a_wrong_one_is_refused():
    assert math.isnan(scores.forward_transfer([0.1, 0.5], None))
    assert math.isnan(scores.forward_transfer(None, [0.1, 0.1]))
    assert math.isnan(scores.forward_transfer([0.1, None], [0.1, 0.1]))
    assert math.isnan(scores.intransigence(MATRIX, None))
    with pytest.raises(ValueError, match="each of 3 tasks, got 2"):
        scores.intransigence(MATRIX, [0.9, 0.9])


@given(matrices)
def test_forgetting_bounds_backward_transfer(matrix):
    assert scores.forgetting(matrix) >= -scores.backward_transfer(matrix) - 1e-12


@given(matrices)
def test_backward_transfer_is_final_less_learning_accuracy(matrix):
    tasks = len(matrix)
    expected = (scores.final_average_accuracy(matrix) - scores.learning_accuracy(matrix)) * tasks / (tasks - 1)
    assert scores.backward_transfer(matrix) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("confidence", [0, 1, 95, math.nan])
def test_a_confidence_that_has_no_meaning_is_refused(confidence):
    with pytest.raises(ValueError, match="Expected a confidence between 0 and 1"):
        Estimate.of([0.5, 0.6]).half_width(confidence)


@given(st.lists(fractions, min_size=2, max_size=20))
def test_an_estimate_is_numpys_mean_and_scipys_interval(values):
    estimate = Estimate.of(values)
    assert estimate.mean == pytest.approx(np.mean(values))
    assert estimate.deviation == pytest.approx(np.std(values, ddof=1), abs=1e-12)
    low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), max(stats.sem(values), 1e-300))
    assert estimate.half_width(0.95) == pytest.approx((high - low) / 2, abs=1e-9)


def test_one_seed_has_a_mean_and_no_interval():
    estimate = Estimate.of([0.5])
    assert (estimate.mean, estimate.count) == (0.5, 1)
    assert math.isnan(estimate.deviation)
    assert math.isnan(estimate.half_width(0.68))


def test_no_seeds_have_no_mean():
    assert math.isnan(Estimate.of([]).mean)
    assert Estimate.of([None, math.nan]).missing == 2


def test_paired_differences_lose_what_the_seeds_share():
    first = {seed: 0.5 + seed / 10 for seed in range(5)}
    second = {seed: value - 0.01 for seed, value in first.items()}
    difference = scores.paired_difference(first, second)
    assert difference.mean == pytest.approx(0.01)
    assert difference.half_width(0.95) < 1e-12


def test_a_seed_that_only_one_has_is_missing():
    difference = scores.paired_difference({0: 0.9, 1: 0.8, 3: None}, {1: 0.7, 2: 0.5, 3: 0.1})
    assert (difference.count, difference.missing) == (1, 3)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=8).filter(lambda values: np.std(values) > 1e-3))
def test_the_p_value_is_scipys(values):
    assert Estimate.of(values).p_value == pytest.approx(stats.ttest_1samp(values, 0).pvalue, abs=1e-9)


def test_the_p_value_where_there_is_no_spread():
    assert Estimate.of([0.5, 0.5]).p_value == 0
    assert Estimate.of([0.0, 0.0]).p_value == 1
    assert math.isnan(Estimate.of([0.5]).p_value)


def test_holm_worked_by_hand():
    assert scores.holm([0.005, 0.011, 0.02, 0.04], 0.05) == [True, True, True, True]
    assert scores.holm([0.04, 0.001, 0.03], 0.05) == [False, True, False]
    assert scores.holm([], 0.05) == []


@given(st.lists(st.floats(0, 1), max_size=6), st.floats(0.001, 0.2))
def test_holm_refutes_between_bonferroni_and_no_correction(p_values, level):
    for p_value, refuted in zip(p_values, scores.holm(p_values, level), strict=True):
        assert refuted or p_value > level / len(p_values)
        assert not refuted or p_value <= level
