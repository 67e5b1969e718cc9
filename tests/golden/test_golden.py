"""What every method does today, number by number: the weights after three tasks."""

from functools import cache

import pytest
import torch

from golden import batched, eager, stored

values, scores = cache(stored.values), cache(stored.scores)


def test_every_case_is_recorded_and_no_other():
    side_by_side = [f"batched: {name}" for name in batched.NAMES]
    assert sorted(values()) == sorted([*eager.CASES, *side_by_side])
    assert list(scores()) == list(batched.NAMES)


@pytest.mark.parametrize("name", eager.CASES)
def test_an_optimizer_takes_the_steps_that_were_recorded(name):
    case, expected = eager.CASES[name], values()[name]
    found = eager.weights(case)
    torch.testing.assert_close(found, expected.expand_as(found), rtol=case.tolerance, atol=case.tolerance)


@pytest.mark.parametrize("name", batched.NAMES)
def test_runs_side_by_side_end_where_they_were_recorded(name, tmp_path):
    found, measured = batched.trained(name, tmp_path)
    tolerance = batched.TOLERANCES.get(name, batched.TOLERANCE)
    torch.testing.assert_close(found, values()[f"batched: {name}"], rtol=tolerance, atol=tolerance)
    assert measured == scores()[name]
