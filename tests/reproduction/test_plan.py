"""What the paper's experiments are, run by run."""

import os

import pytest

from fopng.lab.runs.hyperparameters import paper_benchmarks, paper_methods
from reproduction.plan import paper_parts, part_names

BOTH = ["matched", "printed"]


def parts(**changes):
    return paper_parts(**{"protocols": ["matched"], "seeds": range(5), **changes})


def test_all_of_it():
    found = parts()
    assert [part.name for part in found] == [
        *paper_benchmarks(),
        *[n for n in ("lambda", "alpha", "fisher-samples") for _ in "12"],
    ]
    for part in found[:5]:
        asked = [(words["methods"][0], *words["assignments"]) for words in part.asked]
        assert asked == [
            *((method,) for method in paper_methods()),
            ("fopng", "projection=orthogonal"),
            ("fopng-prefisher", "projection=orthogonal"),
            ("ong",),
            ("natural-ogd",),
        ]
        assert all(list(words["seeds"]) == [0, 1, 2, 3, 4] for words in part.asked)
    assert [len(each["choices"]) for part in found[5:] for each in part.asked] == [13, 13, 8, 8, 7, 7]


def test_both_protocols_once_where_they_are_the_same():
    titles = [part.title for part in parts(protocols=BOTH, only=["comparisons"])]
    assert titles == [
        *(f"{name}-mnist, {protocol}" for name in ("split", "rotated", "permuted") for protocol in BOTH),
        "split-cifar10, matched",
        "split-cifar100, matched",
    ]
    assert [part.title for part in parts(protocols=["printed"], only=["split-cifar10"])] == ["split-cifar10, printed"]


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        (["split-mnist"], {"split-mnist"}),
        (["alpha", "rotated-mnist"], {"alpha", "rotated-mnist"}),
        (["ablations"], {"lambda", "alpha", "fisher-samples"}),
        (["comparisons"], set(paper_benchmarks())),
    ],
)
def test_a_part_of_it(only, expected):
    assert {part.name for part in parts(only=only)} == expected
    assert set(only) <= set(part_names())


def test_a_part_that_there_is_not():
    with pytest.raises(ValueError, match="Did you mean 'split-mnist'"):
        parts(only=["split-mnits"])


@pytest.mark.skipif("FOPNG_DATA" not in os.environ, reason="the real datasets are not at hand: set FOPNG_DATA")
def test_runs_are_the_papers():
    [part] = parts(only=["split-mnist"], epochs=2, seeds=[3])
    configs = part.configurations()
    assert len({config.key for config in configs}) == len(configs) == 11
    assert {(config.seed, config.epochs, config.batch_size, config.validation) for config in configs} == {
        (3, 2, 10, False)
    }
