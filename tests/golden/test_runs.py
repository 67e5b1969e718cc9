"""Whole runs through the command line: the accuracies are those that were recorded, to the bit."""

import json
import os

import pytest

from golden import whole

TOLERANCE = 0.0
"""In accuracy, from 0 to 1. Raise it to 0.001 (0.1 points) only with the reason here."""

RECORDED = json.loads(whole.RUNS.read_text())


def test_every_command_is_recorded_and_no_other():
    assert list(RECORDED) == whole.COMMANDS


@pytest.mark.slow
@pytest.mark.parametrize("command", whole.COMMANDS)
def test_a_run_has_the_accuracies_that_were_recorded(command, tmp_path):
    if "mnist" in command and not os.environ.get("FOPNG_DATA"):
        pytest.skip("MNIST is looked for where FOPNG_DATA says")
    found, expected = whole.run(command, tmp_path), RECORDED[command]
    assert [run["seed"] for run in found] == [run["seed"] for run in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert list(ours) == list(theirs)
        for measured in whole.MEASURED:
            assert flat(ours[measured]) == pytest.approx(flat(theirs[measured]), rel=0, abs=TOLERANCE), measured


def flat(rows):
    """Every number of a matrix, with None as -1."""
    if isinstance(rows, list):
        return [number for row in rows for number in flat(row)]
    return [-1.0 if rows is None else rows]
