"""Results stand together by the experiments that they name, and by nothing else."""

import random

import pytest

from fopng.lab.benchmarks import BENCHMARKS
from fopng.lab.report.sections import ablations_of, sections_of
from sample_runs import laboratory
from sweep_runs import held_out, on_test

ORDER = [
    "split-mnist",
    "rotated-mnist",
    "permuted-mnist",
    "split-cifar10",
    "split-digits",
    "rotated-digits",
    "own:stream",
]


def shapes(results):
    return [(section.kind, section.condition, len(section.results)) for section in sections_of(results)]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], [("comparison", "matched protocol", 1)]),
        (["comparison"], [("comparison", "matched protocol", 1)]),
        (["comparison/paper"], [("comparison", "matched protocol, the paper's settings", 1)]),
        (["comparison/mine"], [("comparison", "matched protocol, mine", 1)]),
        (["chosen/cifar"], [("comparison", "matched protocol, settings selected on validation", 1)]),
        (["ablation/damping"], [("ablation", "matched protocol", 1)]),
        (
            ["ablation/damping", "comparison"],
            [("comparison", "matched protocol", 1), ("ablation", "matched protocol", 1)],
        ),
    ],
)
def test_a_run_stands_where_its_names_say(names, expected):
    assert shapes([on_test(0.8).named(*names)]) == expected


def test_held_out_runs_without_a_name_are_a_sweep():
    [section] = sections_of([held_out(0.5 + rate, settings={"lr": rate}) for rate in (0.1, 0.2)])
    assert section.title == "Sweep on split-mnist"
    assert [response.chosen.settings for response in section.responses] == [{"lr": 0.2}]


def test_sweeps_of_two_files_are_two_responses_and_their_choices_one_comparison():
    runs = [
        held_out(0.5 + rate, settings={"lr": rate}).named(f"sweep/{stem}")
        for stem, rates in (("a", (0.1, 0.2)), ("b", (0.25, 0.3)))
        for rate in rates
    ]
    chosen = [on_test(0.9, method=m).named(f"chosen/{stem}") for m, stem in (("sgd", "a"), ("ewc", "b"))]
    comparison, sweep = sections_of([*runs, *chosen])
    assert sorted(comparison.labels.values()) == ["ewc", "sgd"]
    assert [len(response.points) for response in sweep.responses] == [2, 2]


def test_protocols_and_epochs_are_never_mixed():
    runs = [on_test(0.8), on_test(0.8, epochs=1), on_test(0.8, protocol="printed")]
    assert len(sections_of(runs)) == 3


def test_a_run_counts_once():
    [section] = sections_of([on_test(0.8), on_test(0.8)])
    assert len(section.results) == 1


def test_steps_of_an_ablation_rise_and_all_stands_last():
    runs = [on_test(0.7, seed=s, settings={"fisher_samples": v}) for v in (1, None, 16, 1024) for s in range(2)]
    [found] = ablations_of(runs, "fisher_samples")
    assert [(step.value, len(step.results)) for step in found.steps] == [(1, 2), (16, 2), (1024, 2), (None, 2)]
    assert (found.setting, found.method, found.paper_value) == ("fisher_samples", "fopng", None)


def test_lines_are_told_apart_by_the_settings_that_differ():
    runs = [on_test(0.8, method="sgd", settings={"lr": rate}) for rate in (0.1, 0.2)] + [on_test(0.7, method="ewc")]
    [section] = sections_of(runs)
    assert sorted(section.lines) == ["ewc", "sgd (lr=0.1)", "sgd (lr=0.2)"]


def test_sections_are_in_the_order_of_the_catalogue_whatever_the_order_of_the_runs():
    runs = laboratory(["sgd", "ewc"], benchmarks=ORDER, seeds=2)
    runs += [held_out(0.6, benchmark=name, settings={"lr": rate}) for name in ORDER[:3] for rate in (0.1, 0.2)]
    found = sections_of(random.Random(0).sample(runs, len(runs)))
    assert [section.title for section in found] == [*ORDER, *(f"Sweep on {name}" for name in ORDER[:3])]
    assert list(BENCHMARKS)[:4] == ORDER[:4]
    assert found == sections_of(runs)


def test_families_first_then_the_best_mean():
    runs = [on_test(a, method=m) for m, a in (("joint", 0.99), ("er", 0.9), ("sgd", 0.5), ("ewc", 0.7), ("mine", 0.8))]
    [section] = sections_of(runs)
    assert list(section.lines) == ["ewc", "sgd", "er", "joint", "mine"]
