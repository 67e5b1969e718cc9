"""Any heap of results is sorted into comparisons, sweeps and ablations by its configurations alone."""

import random

from fopng.lab.analysis.experiments import PAPER_SETTINGS, SELECTED_SETTINGS, sort_out
from sweep_runs import SETTINGS, held_out, on_test


def comparison(**changes):
    return [on_test(0.8, method=method, seed=seed, **changes) for method in SETTINGS for seed in range(3)]


def ablation(setting="damping", values=(1e-4, 5e-4, 1e-3, 1e-2), **changes):
    return [on_test(0.7, seed=seed, settings={setting: value}, **changes) for value in values for seed in range(3)]


def sweep(method="sgd", best=0.25, **changes):
    return [
        held_out(0.9 if rate == best else 0.6, method=method, seed=seed, settings={"lr": rate}, **changes)
        for rate in (0.125, 0.25, 0.5)
        for seed in (100, 101)
    ]


def keys(results):
    return sorted(result.config.key for result in results)


def test_the_papers_settings_are_one_comparison():
    found = sort_out(comparison())
    assert [(each.settings, each.condition) for each in found.comparisons] == [
        (PAPER_SETTINGS, f"matched protocol, {PAPER_SETTINGS}")
    ]
    assert keys(found.comparisons[0].results) == keys(comparison())
    assert found.responses == found.ablations == ()


def test_settings_of_ones_own_are_one_too():
    [found] = sort_out([*comparison(), *ablation(values=(7e-4,))]).comparisons
    assert found.settings == ""
    assert found.condition == "matched protocol"


def test_protocols_are_kept_apart():
    found = sort_out([*comparison(), *comparison(protocol="printed", first_task_lr=None)])
    assert [each.results[0].config.protocol for each in found.comparisons] == ["matched", "printed"]


def test_an_ablation_leaves_the_papers_value_in_the_comparison():
    found = sort_out([*comparison(), *ablation()])
    [one] = found.ablations
    assert (one.setting, one.method, one.benchmark, one.paper_value) == ("damping", "fopng", "split-mnist", 5e-4)
    assert [step.value for step in one.steps] == [1e-4, 5e-4, 1e-3, 1e-2]
    assert [len(step.results) for step in one.steps] == [3, 3, 3, 3]
    assert [each.settings for each in found.comparisons] == [PAPER_SETTINGS]


def test_a_sweep_that_chose_an_ablated_value_keeps_its_runs():
    """The chosen settings are those of a step of the ablation, but for the seeds: they are not counted there."""
    chosen = [on_test(0.9, seed=seed, settings={"damping": 1e-3}) for seed in (10, 11)]
    tried = [
        held_out(0.9 if value == 1e-3 else 0.6, seed=100, settings={"damping": value}) for value in (1e-4, 1e-3, 1e-2)
    ]
    found = sort_out([*comparison(), *ablation(), *tried, *chosen])
    [one] = found.ablations
    assert [[run.config.seed for run in step.results] for step in one.steps] == [[0, 1, 2]] * 4
    assert [each.settings for each in found.comparisons] == [PAPER_SETTINGS, SELECTED_SETTINGS]
    assert keys(found.comparisons[1].results) == keys(chosen)


def test_all_samples_stand_last():
    values = [1, None, 16, 1024]
    [one] = sort_out(ablation("fisher_samples", values)).ablations
    assert [step.value for step in one.steps] == [1, 16, 1024, None]


def test_two_values_are_a_comparison():
    assert sort_out(ablation(values=(5e-4, 1e-3))).ablations == ()


def test_two_ablations_of_one_method_share_the_papers_value():
    runs = {run.config.key: run for run in [*ablation(), *ablation("fisher_weight", (0.2, 0.5, 0.9))]}
    found = sort_out(runs.values())
    assert sorted(each.setting for each in found.ablations) == ["damping", "fisher_weight"]
    assert [len(each.results) for each in found.comparisons] == [3]


def test_held_out_runs_are_a_sweep():
    found = sort_out([*sweep(), *sweep("ogd", 0.5)])
    assert [(each.method, each.chosen.settings["lr"]) for each in found.responses] == [("ogd", 0.5), ("sgd", 0.25)]
    assert found.comparisons == ()


def test_sweeps_with_seeds_of_their_own_are_told_apart():
    other = [
        held_out(0.7, method="sgd", seed=seed, settings={"lr": rate})
        for rate in (0.25, 1.0)
        for seed in (200, 201, 202)
    ]
    unfinished = sweep()[:-1]
    found = sort_out([*unfinished, *other]).responses
    assert [(len(each.points), len(each.points[0].results)) for each in found] == [(3, 2), (2, 3)]
    assert [each.chosen.settings["lr"] for each in found] == [0.25, 0.25]


def test_the_papers_filter_is_applied_on_mnist_alone():
    for benchmark, chosen in (("split-mnist", False), ("split-cifar10", True)):
        [found] = sort_out(sweep(first=0.85, benchmark=benchmark)).responses
        assert (found.chosen is not None) is chosen


def test_the_chosen_on_fresh_seeds_are_a_comparison_of_their_own():
    fresh = [on_test(0.9, method="sgd", seed=seed, settings={"lr": 0.25}) for seed in (10, 11)]
    found = sort_out([*comparison(), *sweep(), *fresh])
    assert [each.settings for each in found.comparisons] == [PAPER_SETTINGS, SELECTED_SETTINGS]
    assert keys(found.comparisons[1].results) == keys(fresh)


def test_a_reference_may_stand_beside_the_chosen():
    chosen = [("sgd", 0.25), ("ogd", 0.5)]
    fresh = [on_test(0.9, method=method, seed=10, settings={"lr": rate}) for method, rate in chosen]
    joint = on_test(0.95, method="joint", seed=10, settings={"lr": 0.01})
    found = sort_out([*comparison(), *sweep(), *sweep("ogd", 0.5), *fresh, joint]).comparisons
    assert [(each.settings, len(each.results)) for each in found] == [(PAPER_SETTINGS, 12), (SELECTED_SETTINGS, 3)]


def test_no_run_is_lost_and_the_order_does_not_matter():
    runs = [*comparison(), *ablation(values=(1e-4, 1e-3, 1e-2)), *sweep(), *comparison(epochs=1)]
    shuffled = random.Random(0).sample(runs, len(runs))
    found = sort_out(shuffled)
    there = {r.config.key for each in found.comparisons for r in each.results}
    there |= {r.config.key for each in found.ablations for step in each.steps for r in step.results}
    there |= {r.config.key for each in found.responses for point in each.points for r in point.results}
    assert there == {run.config.key for run in runs}
    assert found == sort_out(runs)


def test_a_dataset_of_ones_own_has_no_paper_settings():
    [found] = sort_out([on_test(0.5, benchmark="my.module:stream", dataset="my.module:stream")]).comparisons
    assert found.settings == ""
