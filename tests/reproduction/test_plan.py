"""What the paper's experiments are, run by run."""

import pytest

from fopng.lab.runs.hyperparameters import paper_benchmarks, paper_methods
from reproduction.plan import paper_parts, part_names

BOTH = ["matched", "printed"]


def parts(**changes):
    return list(paper_parts(**{"protocols": ["matched"], "seeds": range(5), **changes}))


def test_all_of_it():
    found = parts()
    ablated = [
        f"{n} on {b}, matched" for n in ("lambda", "alpha", "fisher-samples") for b in ("split-mnist", "rotated-mnist")
    ]
    assert [part.title for part in found] == [*(f"{name}, matched" for name in paper_benchmarks()), *ablated]
    lines = [*paper_methods(), "fopng", "fopng-prefisher", "ong", "natural-ogd"]
    for part in found[:5]:
        assert [config.method for config in part.configs if config.seed == 0] == lines
        forms = [config.settings.get("projection") for config in part.configs if config.seed == 0]
        assert (forms.count("printed"), forms.count("orthogonal")) == (2, 2)
    assert {config.seed for part in found for config in part.configs} == {0, 1, 2, 3, 4}
    assert [len(part.configs) for part in found] == [*[55] * 5, 65, 65, 40, 40, 35, 35]
    names = [f"ablation/{name}" for name in ("damping", "fisher_weight", "fisher_samples") for _ in "12"]
    assert [part.experiment for part in found] == [*["comparison/paper"] * 5, *names]


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
        (["split-mnist"], ["split-mnist, matched"]),
        (
            ["alpha", "rotated-mnist"],
            ["rotated-mnist, matched", "alpha on split-mnist, matched", "alpha on rotated-mnist, matched"],
        ),
    ],
)
def test_a_part_of_it(only, expected):
    assert [part.title for part in parts(only=only)] == expected
    assert set(only) <= set(part_names())


def test_a_part_that_there_is_not():
    with pytest.raises(ValueError, match="Did you mean 'split-mnist'"):
        parts(only=["split-mnits"])


def test_a_trial_has_fewer_epochs_and_each_run_once():
    [part] = parts(only=["split-mnist"], epochs=2, seeds=[3])
    assert len({config.key for config in part.configs}) == len(part.configs) == 11
    assert {(config.epochs, config.batch_size, config.validation) for config in part.configs} == {(2, 10, False)}
