"""The scores against hand-worked numbers, the intervals against SciPy's, and one table of them for every output."""

import csv
import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fopng.cli.commands import Show
from fopng.cli.results import show_results
from fopng.cli.show import show
from fopng.lab.runs import scores
from fopng.lab.runs.export import write_json, write_summary_csv
from fopng.lab.runs.frame import frame
from fopng.lab.runs.scores import SCORES, Estimate, Score
from fopng.lab.runs.store import Store
from sample_runs import result

MATRIX = [[0.9, 0.5, 0.4], [0.8, 0.95, 0.6], [0.85, 0.7, 1.0]]
TRIANGLE = [[0.9], [0.8, 0.95], [0.85, 0.7, 1.0]]
FINAL = [scores.final_average_accuracy, scores.forgetting, scores.backward_transfer, scores.learning_accuracy]

fractions = st.floats(0, 1)
matrices = st.integers(2, 6).flatmap(
    lambda tasks: st.lists(st.lists(fractions, min_size=tasks, max_size=tasks), min_size=tasks, max_size=tasks)
)


@pytest.mark.parametrize("rows", [MATRIX, TRIANGLE], ids=["matrix", "triangle"])
def test_scores_of_a_matrix_worked_by_hand(rows):
    """Tasks that were measured before they were learnt change nothing."""
    assert scores.average_accuracies(rows) == pytest.approx([0.9, 0.875, 0.85])
    assert scores.final_average_accuracy(rows) == pytest.approx(0.85)
    assert scores.forgetting(rows) == pytest.approx((0.05 + 0.25) / 2)
    assert scores.backward_transfer(rows) == pytest.approx((-0.05 - 0.25) / 2)
    assert scores.learning_accuracy(rows) == pytest.approx((0.9 + 0.95 + 1.0) / 3)
    assert scores.intransigence(rows, [0.95, 0.97, 0.99]) == pytest.approx((0.05 + 0.02 - 0.01) / 3)
    assert scores.forward_transfer([0.1, 0.5, 0.6], [0.1, 0.2, 0.3]) == pytest.approx((0.3 + 0.3) / 2)


def test_what_was_lost_worked_by_hand():
    """In the end, of all tasks but the last; undefined while tasks are missing, for one task and for joint training."""
    matrix = [[0.0, None, None], [0.1, 0.0, None], [0.5, 0.25, 0.0]]
    mean, worst = (score for score in SCORES if score.name.startswith("really_lost"))
    found = dataclasses.replace(result(), lost=matrix)
    assert (mean.of(found), mean.text(mean.of(found)), worst.of(found)) == (0.375, "0.375 nats", 0.5)
    for rows in (None, matrix[:2], [[0.0]], [[None, None], [0.0, 0.0]]):
        assert {score.of(dataclasses.replace(result(), lost=rows)) for score in (mean, worst)} == {None}


def test_forgetting_is_from_the_best_since_the_task_was_learnt_not_from_its_first_measure():
    assert scores.forgetting([[0.5], [0.9, 1.0], [0.6, 1.0, 1.0]]) == pytest.approx((0.3 + 0.0) / 2)


def test_a_score_that_needs_what_is_missing_is_undefined_and_no_other():
    assert [score([[0.7]]) for score in FINAL] == pytest.approx([0.7, math.nan, math.nan, 0.7], nan_ok=True)
    assert scores.average_accuracies(MATRIX[:2]) == pytest.approx([0.9, 0.875])
    assert all(math.isnan(score(MATRIX[:2])) for score in FINAL)
    assert scores.average_accuracies([]) == []
    assert all(math.isnan(score([])) for score in FINAL)
    holes = [[0.9, None], [None, 0.8]]
    assert scores.average_accuracies(holes) == pytest.approx([0.9, math.nan], nan_ok=True)
    assert [score(holes) for score in FINAL] == pytest.approx([math.nan, math.nan, math.nan, 0.85], nan_ok=True)


def test_transfer_without_a_reference_is_undefined_and_a_wrong_one_is_refused():
    for before, initial in (([0.1, 0.5], None), (None, [0.1, 0.1]), ([0.1, None], [0.1, 0.1]), ([0.7], [0.0])):
        assert math.isnan(scores.forward_transfer(before, initial))
    assert math.isnan(scores.intransigence(MATRIX, None))
    assert math.isnan(scores.intransigence(MATRIX[:2], [1, 1, 1]))
    with pytest.raises(ValueError, match="each of 3 tasks, got 2"):
        scores.intransigence(MATRIX, [0.9, 0.9])
    with pytest.raises(ValueError, match="each of 2 tasks, got 1"):
        scores.forward_transfer([0.1, 0.2], [0.1])


@given(matrices)
def test_backward_transfer_is_final_less_learning_accuracy_and_bounds_forgetting(matrix):
    tasks = len(matrix)
    expected = (scores.final_average_accuracy(matrix) - scores.learning_accuracy(matrix)) * tasks / (tasks - 1)
    assert scores.backward_transfer(matrix) == pytest.approx(expected, abs=1e-12)
    assert scores.forgetting(matrix) >= -scores.backward_transfer(matrix) - 1e-12


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=20).filter(lambda values: np.std(values) > 1e-3))
def test_an_estimate_is_numpys_mean_and_scipys_interval_and_p_value(values):
    estimate = Estimate.of(values)
    low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
    assert (estimate.mean, estimate.deviation) == pytest.approx((np.mean(values), np.std(values, ddof=1)))
    assert estimate.half_width(0.95) == pytest.approx((high - low) / 2)
    assert estimate.p_value == pytest.approx(stats.ttest_1samp(values, 0).pvalue, abs=1e-9)


def test_one_seed_has_a_mean_and_no_interval_and_no_seeds_have_no_mean():
    one = Estimate.of([0.5])
    assert (one.mean, one.count) == (0.5, 1)
    assert all(math.isnan(value) for value in (one.deviation, one.half_width(0.68), one.p_value))
    assert math.isnan(Estimate.of([]).mean)
    assert Estimate.of([None, math.nan]).missing == 2


def test_the_p_value_where_there_is_no_spread():
    assert [Estimate.of([value, value]).p_value for value in (0.5, 0.0)] == [0, 1]


@pytest.mark.parametrize("confidence", [0, 1, 95, math.nan])
def test_a_confidence_that_has_no_meaning_is_refused(confidence):
    with pytest.raises(ValueError, match="Expected a confidence between 0 and 1"):
        Estimate.of([0.5, 0.6]).half_width(confidence)


def test_paired_differences_lose_what_the_seeds_share():
    first = {seed: 0.5 + seed / 10 for seed in range(5)}
    difference = scores.paired_difference(first, {seed: value - 0.01 for seed, value in first.items()})
    assert difference.mean == pytest.approx(0.01)
    assert difference.half_width(0.95) < 1e-12
    alone = scores.paired_difference({0: 0.9, 1: 0.8, 3: None}, {1: 0.7, 2: 0.5, 3: 0.1})
    assert (alone.count, alone.missing) == (1, 3)


def test_holm_worked_by_hand():
    assert scores.holm([0.005, 0.011, 0.02, 0.04], 0.05) == [True, True, True, True]
    assert scores.holm([0.04, 0.001, 0.03], 0.05) == [False, True, False]
    assert scores.holm([], 0.05) == []


@given(st.lists(st.floats(0, 1), max_size=6), st.floats(0.001, 0.2))
def test_holm_refutes_between_bonferroni_and_no_correction(p_values, level):
    for p_value, refuted in zip(p_values, scores.holm(p_values, level), strict=True):
        assert refuted or p_value > level / len(p_values)
        assert not refuted or p_value <= level


@pytest.fixture
def worst():
    """A score that is one entry, and nothing else anywhere."""
    SCORES.append(Score("worst_task", "Worst task", lambda run: min(run.accuracy[-1]), higher_is_better=True))
    yield "worst_task"
    del SCORES[-1]


def test_a_new_score_is_in_every_output(worst, tmp_path, capsys):
    run = result()
    Store(tmp_path).take([run])
    write_json(tmp_path / "all.json", [run])
    write_summary_csv(tmp_path / "all.csv", [run])
    show_results([run], as_json=True)
    found = json.loads(capsys.readouterr().out)
    found += json.loads((tmp_path / "all.json").read_text())
    found += [json.loads(path.read_text()) for path in tmp_path.rglob("result.json")]
    found += csv.DictReader((tmp_path / "all.csv").read_text().splitlines())
    found += [frame([run]).iloc[0]]
    assert [float(members[worst]) for members in found] == [0.8] * 5
    show(Show(key=run.config.key, out=tmp_path))
    assert "Worst task" in capsys.readouterr().out


@pytest.mark.parametrize("unit", ["fraction", "seconds", "bytes", "number"])
def test_a_value_is_shown_with_its_unit(unit):
    shown = {"fraction": "250.00 %", "seconds": "2.5 s", "bytes": "0 MB", "number": "2.5"}
    score = Score("any", "Any", lambda run: None, unit)
    assert (score.text(2.5), score.text(None)) == (shown[unit], "–")
