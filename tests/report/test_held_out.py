"""Runs that held a part of the training set out show their accuracy on it."""

from dataclasses import replace

from fopng.lab.report.sections import sections_of
from sweep_runs import held_out


def test_a_comparison_of_such_runs_is_on_the_held_out_part():
    run = replace(held_out(0.6, settings={"lr": 0.1}), experiments=("comparison",), accuracy=[[0.9, None], [0.7, 0.7]])
    [section] = sections_of([run])
    shown = section.frame["final_accuracy"].iloc[0]
    wanted = sum(run.validation_accuracy[-1]) / len(run.validation_accuracy[-1])
    assert shown == wanted
    assert shown != run.final_accuracy
    assert "accuracy on the part of the training set that is held out" in section.details
