"""A sweep's file: what it may say, and what is said when it is wrong."""

import pytest

from fopng.lab.runs.request import configurations
from fopng.lab.runs.settings import method_settings
from fopng.lab.sweep import parse_sweep, read_sweep
from fopng.lab.sweep.space import Range, Stage
from fopng.optim.registry import METHODS

MEMBERS = {
    "benchmarks": ["split-digits"],
    "validation": {"seeds": [100, 101]},
    "test": {"seeds": [0, 1, 2]},
    "methods": {"sgd": {"lr": [0.1, 1]}, "fopng": [{"lr": [0.1, 0.2], "damping": 1e-3}, {"damping": [1e-4, 1e-3]}]},
}


def sweep(**changes):
    return parse_sweep({**MEMBERS, **changes}, "mine")


def test_what_is_said():
    found = sweep(selection={"first_task_at_least": 0.9}, epochs=3, protocol="printed", benchmark={"order": [3, 1]})
    assert found.benchmarks == ("split-digits",)
    assert (found.validation_seeds, found.test_seeds) == ((100, 101), (0, 1, 2))
    assert (found.rule.first_task_at_least, found.shared) == (0.9, {"epochs": 3, "protocol": "printed"})
    assert (found.names("fopng"), found.size()) == (["damping", "lr"], 2 * (2 + 2 + 2) + 2 * 3)


def test_combinations_are_all_of_them_in_their_settings_type():
    known = method_settings(METHODS["fopng"])
    stage = Stage.read({"lr": [1, "1e-3"], "fisher_samples": ["full", 4, 5.0], "momentum": 0.5}, known, "x")
    assert len(stage) == 6
    assert [(c["lr"], c["fisher_samples"], c["momentum"]) for c in stage.combinations()] == [
        (a, b, 0.5) for a in (1.0, 0.001) for b in (None, 4, 5)
    ]
    assert {type(choice["lr"]) for choice in stage.combinations()} == {float}


def test_its_runs_are_those_of_the_command_line():
    found = sweep(epochs=2, benchmark={"tasks": 2})
    asked = found.configurations("split-digits", "fopng", [{"lr": 0.5, "fisher_samples": None}], validation=True)
    words = ["tasks=2", "lr=0.5", "fisher_samples=full"]
    plain = {"benchmark": "split-digits", "methods": ["fopng"], "seeds": [100, 101], "epochs": 2, "validation": True}
    assert asked == configurations(**plain, assignments=words)


def test_how_it_is_trained_can_be_tried_too():
    found = sweep(methods={"sgd": {"epochs": [1, 2], "batch_size": 20, "first_task_lr": 0.5}})
    [config, _] = found.configurations("split-digits", "sgd", [{"epochs": 2, "batch_size": 20}], validation=True)
    assert (config.epochs, config.batch_size) == (2, 20)
    assert "epochs" not in config.settings


def test_a_part_of_it():
    found = sweep(benchmarks=["split-digits", "rotated-digits"]).only(["rotated-digits"], ["sgd"])
    assert found.benchmarks == ("rotated-digits",)
    assert list(found.stages) == ["sgd"]
    with pytest.raises(ValueError, match="Did you mean 'sgd'"):
        sweep().only([], ["sdg"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"benchmark": 3}, r"Expected a table \[benchmark\]"),
        ({"benchmarks": []}, "Expected a list of benchmarks"),
        ({"benchmarks": ["a", "a"]}, "Expected each benchmark once"),
        ({"methods": {}}, r"Expected a \[methods.NAME\] table"),
        ({"methods": {"sgd": {}}}, r"Expected a setting at least in \[methods.sgd\]"),
        ({"methods": {"sgd": {"lr": []}}}, r"a value at least, and each once, for lr in \[methods.sgd\]"),
        ({"methods": {"sgd": {"lr": [1, 1.0]}}}, "each once, for lr"),
        ({"methods": {"sgd": {"lr": [[1]]}}}, "Expected a number for lr"),
        ({"methods": {"sgd": {"lr": ["fast"]}}}, "Expected a number for lr"),
        ({"methods": {"sgd": {"lr": [-1]}}}, "Expected lr of at least 0 and finite, got -1.0"),
        ({"methods": {"sgd": 3}}, r"Expected a table \[methods.sgd\]"),
        ({"methods": {"fopgn": {"lr": 1}}}, "Did you mean 'fopng'"),
        ({"methods": {"sgd": {"dampening": 1}}}, r"Expected a setting in \[methods.sgd\]"),
        ({"methods": {"sgd": {"rate": {"low": 0.1, "high": 1.0}}}}, "Expected a setting"),
        ({"methods": {"sgd": {"lr": {"low": 1}}}}, "Expected a range such as"),
        (
            {"methods": {"sgd": {"lr": {"low": 1, "hi": 2}}}},
            "Expected a setting of the range for lr.*'hi'. Did you mean 'high'",
        ),
        ({"methods": {"sgd": {"lr": {"low": 2, "high": 1}}}}, "Expected low below high"),
        ({"methods": {"sgd": {"lr": {"low": 0, "high": 1, "log": True}}}}, "Expected a low above 0"),
        ({"methods": {"fopng": {"fisher_weight": {"low": 0, "high": 2}}}}, "Expected fisher_weight in"),
        ({"validation": {}}, r"Expected seeds in \[validation\]"),
        ({"validation": {"seeds": [1, 1]}}, "each once"),
        ({"validation": {"seeds": [-1]}}, "Expected seeds of 0 or more"),
        ({"validation": {"seeds": 5}}, "Expected whole numbers"),
        ({"test": {"seeds": [100]}}, r"Expected fresh seeds to test on, got \[100\]"),
        ({"selection": {"first_task_at_least": 90}}, r"Expected first_task_at_least in \[0, 1\], got 90"),
        ({"selection": {"first_task": 0.9}}, "Did you mean 'first_task_at_least'"),
        ({"search": {"trials": 0}}, "Expected trials of at least 1"),
        ({"search": {"sampler": "tpe"}}, "Expected trials in"),
        ({"search": {"trials": 3}}, "Expected one stage a method"),
        ({"search": {"trials": 3, "sampler": "best"}}, "Expected 'tpe' or 'random' or 'gp' or 'qmc' for sampler"),
        ({"protocol": 3}, "Expected 'matched' or 'printed' for protocol, got 3"),
        ({"epochs": "many"}, "Expected a whole number for epochs"),
        ({"epoch": 3}, "Did you mean 'epochs'"),
    ],
)
def test_mistakes(changes, message):
    with pytest.raises(ValueError, match=message):
        sweep(**changes)


def test_a_range_needs_a_search():
    known = method_settings(METHODS["fopng"])
    spaces = {"lr": {"low": 1, "high": 10, "log": True}, "gradients_per_task": {"low": 1, "high": 9}}
    stage = Stage.read(spaces, known, "x")
    assert stage.ranges == {
        "lr": Range(low=1, high=10, log=True),
        "gradients_per_task": Range(low=1, high=9, whole=True),
    }
    with pytest.raises(ValueError, match=r"\[search\]"):
        stage.combinations()


def test_files(tmp_path):
    path = tmp_path / "mine.toml"
    with pytest.raises(ValueError, match="Name one that exists"):
        read_sweep(path)
    path.write_text("a = [")
    with pytest.raises(ValueError, match="Expected TOML in"):
        read_sweep(path)
    path.write_text("benchmarks = 3")
    with pytest.raises(ValueError, match=r"In .*mine.toml: Expected a list of benchmarks"):
        read_sweep(path)
