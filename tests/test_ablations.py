"""The ablations are the paper's."""

import re
from pathlib import Path

import pytest

from fopng.lab.runs.ablations import ABLATIONS, BENCHMARKS, ablated_values, find_ablation
from fopng.lab.runs.request import configurations

PAPER = Path(__file__).parents[2] / "shared" / "paper" / "fopng.tex"


@pytest.mark.parametrize("name", ["lambda", "alpha"])
def test_values_are_the_papers(name):
    if not PAPER.exists():
        pytest.skip("the paper's source is not beside this repository")
    [written] = re.findall(rf"conduct a sweep of \$\\{name}\$ over \[(.*?)\]", PAPER.read_text(encoding="utf-8"))
    assert ABLATIONS[name].values == tuple(float(value) for value in written.split(","))


def test_how_many():
    assert [len(each.values) for each in ABLATIONS.values()] == [13, 8, 7]
    assert {1, 16, None} <= set(ABLATIONS["fisher-samples"].values)
    assert BENCHMARKS == ("split-mnist", "rotated-mnist")


@pytest.mark.parametrize("name", ABLATIONS)
def test_runs_differ_in_the_one_setting(name):
    ablated = find_ablation(name)
    configs = configurations(benchmark="split-digits", methods=["fopng"], seeds=[0, 1], choices=ablated_values(ablated))
    assert len(configs) == 2 * len(ablated.values)
    assert {config.settings[ablated.setting] for config in configs} == set(ablated.values)
    assert len({str({**config.settings, ablated.setting: 0}) for config in configs}) == 1


def test_other_values():
    choices = ablated_values(find_ablation("fisher-samples"), ["full", "3"])
    configs = configurations(benchmark="split-digits", methods=["fopng"], seeds=[0], choices=choices)
    assert [config.settings["fisher_samples"] for config in configs] == [None, 3]
    with pytest.raises(ValueError, match="each value once"):
        ablated_values(find_ablation("alpha"), ["0.5", "0.5"])


def test_a_name_that_is_not_there():
    with pytest.raises(ValueError, match="Did you mean 'lambda'"):
        find_ablation("lamda")
