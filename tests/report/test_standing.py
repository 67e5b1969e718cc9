"""Who is best, against SciPy's paired t test and Holm's correction worked in full."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fopng.lab.report.standing import Mark, standings


def marks(*rivals):
    return [each.mark for each in standings([dict(enumerate(scores)) for scores in rivals])]


def expected(rivals):
    """The definition: the leader is best if no comparison, the k-th smallest p against 0.05 / (number - k), fails."""
    leader = max(range(len(rivals)), key=lambda index: sum(rivals[index]))
    others = [index for index in range(len(rivals)) if index != leader]
    ordered = sorted(others, key=lambda index: stats.ttest_rel(rivals[leader], rivals[index]).pvalue)
    found, going = {}, True
    for rank, index in enumerate(ordered):
        going = going and stats.ttest_rel(rivals[leader], rivals[index]).pvalue <= 0.05 / (len(others) - rank)
        found[index] = Mark.BEHIND if going else Mark.LEVEL
    found[leader] = Mark.BEST if going else Mark.LEVEL
    return [found[index] for index in range(len(rivals))]


@given(st.integers(0, 10_000))
def test_marks_are_those_of_the_definition(seed):
    random = Random(seed)
    rivals = [[random.gauss(0.1 * place, 0.15) for _ in range(5)] for place in range(random.randint(2, 6))]
    assert marks(*rivals) == expected(rivals)


def test_a_clear_difference_is_marked():
    assert marks([0.9, 0.91, 0.92], [0.5, 0.52, 0.51]) == [Mark.BEST, Mark.BEHIND]


def test_pairs_show_what_spread_hides():
    spread = [0.5, 0.6, 0.7, 0.8]
    assert marks([score + 0.01 + 1e-4 * seed for seed, score in enumerate(spread)], spread) == [Mark.BEST, Mark.BEHIND]
    assert marks([score + 0.01 for score in spread], spread[::-1]) == [Mark.LEVEL, Mark.LEVEL]


@pytest.mark.parametrize("rivals", [([0.9], [0.1]), ([0.9, 0.8, 0.7],), ([math.nan], [math.nan])])
def test_what_cannot_be_said(rivals):
    assert marks(*rivals) == [Mark.UNDECIDED] * len(rivals)


def test_no_seed_in_common():
    first, second = standings([{0: 0.9, 1: 0.91}, {2: 0.1, 3: 0.11}])
    assert (first.mark, second.mark) == (Mark.UNDECIDED, Mark.UNDECIDED)


def test_whoever_lost_runs_is_never_best_but_can_keep_another_from_it():
    lucky, steady = [0.99, 0.98, math.nan, math.nan], [0.90, 0.905, 0.902, 0.9]
    assert marks(lucky, steady) == [Mark.LEVEL, Mark.LEVEL]
    assert marks([0.5, 0.51, math.nan, math.nan], steady) == [Mark.BEHIND, Mark.BEST]


def test_a_method_without_any_score_stands_in_nobodys_way():
    assert marks([math.nan] * 3, [0.9, 0.91, 0.92], [0.1, 0.12, 0.11]) == [Mark.UNDECIDED, Mark.BEST, Mark.BEHIND]


def test_how_far_behind():
    first, second = standings([{0: 0.9, 1: 0.8}, {0: 0.7, 1: 0.5}])
    assert (first.behind.count, second.behind.mean) == (0, pytest.approx(0.25))


def test_no_rivals():
    assert standings([]) == []
