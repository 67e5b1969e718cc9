"""A sweep's file: what it may say, and what is said when it is wrong."""

import pytest

from fopng.lab.runs.request import configurations
from fopng.lab.sweep import parse_sweep, read_sweep
from fopng.lab.sweep.space import Range, Stage

MEMBERS = {
    "benchmarks": ["split-digits"],
    "validation": {"seeds": [100, 101]},
    "test": {"seeds": [0, 1, 2]},
    "methods": {"sgd": {"lr": [0.1, 1]}, "fopng": [{"lr": [0.1, 0.2], "damping": 1e-3}, {"damping": [1e-4, 1e-3]}]},
}


def sweep(**changes):
    return parse_sweep({**MEMBERS, **changes}, "mine")


def test_what_is_said():
    found = sweep(
        selection={"first_task_at_least": 0.9}, epochs=3, protocol="printed", benchmark={"order": [3, 1]}
    ).typed()
    assert found.benchmarks == ("split-digits",)
    assert (found.validation_seeds, found.test_seeds) == ((100, 101), (0, 1, 2))
    assert (found.rule.first_task_at_least, found.epochs, found.protocol) == (0.9, 3, "printed")
    assert found.names("fopng") == ["damping", "lr"]
    assert found.size() == 2 * (2 + 2 + 2) + 2 * 3
    assert found.benchmark_settings == ("order=3,1",)


def test_combinations_are_all_of_them():
    stage = Stage.read({"lr": [1, 2], "damping": [3, 4, 5], "momentum": 0.5}, "x")
    assert len(stage) == 6
    assert [(c["lr"], c["damping"], c["momentum"]) for c in stage.combinations()] == [
        (a, b, 0.5) for a in (1, 2) for b in (3, 4, 5)
    ]


def test_values_take_their_settings_type():
    found = sweep(methods={"fopng": {"lr": [1, "1e-3"], "fisher_samples": ["full", 16]}}).typed()
    [stage] = found.stages["fopng"]
    assert stage.lists == {"lr": (1.0, 0.001), "fisher_samples": (None, 16)}
    assert [type(value) for value in stage.lists["lr"]] == [float, float]


def test_a_request_is_that_of_the_command_line(shared_cache):
    found = sweep(epochs=2, benchmark={"tasks": 2})
    asked = found.configurations("split-digits", "fopng", [{"lr": 0.5, "fisher_samples": None}], validation=True)
    words = ["tasks=2", "lr=0.5", "fisher_samples=full"]
    plain = configurations(
        benchmark="split-digits", methods=["fopng"], seeds=[100, 101], epochs=2, assignments=words, validation=True
    )
    assert asked == plain


def test_how_it_is_trained_can_be_tried_too(shared_cache):
    found = sweep(methods={"sgd": {"epochs": [1, 2], "batch_size": 20, "first_task_lr": 0.5}}).typed()
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
        ({"benchmark": 3}, "Expected a table \\[benchmark\\]"),
        ({"benchmarks": []}, "Expected a list of benchmarks"),
        ({"benchmarks": ["a", "a"]}, "Expected each benchmark once"),
        ({"methods": {}}, "Expected a \\[methods.NAME\\] table"),
        ({"methods": {"sgd": {}}}, "Expected a setting at least in \\[methods.sgd\\]"),
        ({"methods": {"sgd": {"lr": []}}}, "for lr in \\[methods.sgd\\]"),
        ({"methods": {"sgd": {"lr": [1, 1.0]}}}, "each value once"),
        ({"methods": {"sgd": {"lr": [[1]]}}}, "Expected a value"),
        ({"methods": {"sgd": 3}}, "Expected a table"),
        ({"methods": {"sgd": {"lr": {"low": 1}}}}, "Expected a range such as"),
        ({"methods": {"sgd": {"lr": {"low": 2, "high": 1}}}}, "Expected low below high"),
        ({"methods": {"sgd": {"lr": {"low": 0, "high": 1, "log": True}}}}, "Expected a low above 0"),
        ({"validation": {}}, "Expected seeds in \\[validation\\]"),
        ({"validation": {"seeds": [1, 1]}}, "each once"),
        ({"validation": {"seeds": [-1]}}, "Expected seeds"),
        ({"test": {"seeds": [100]}}, "Expected fresh seeds to test on, got \\[100\\]"),
        ({"selection": {"first_task_at_least": 90}}, "Write 90 % as 0.9"),
        ({"selection": {"first_task": 0.9}}, "Did you mean 'first_task_at_least'"),
        ({"search": {"trials": 0}}, "Expected 1 or more trials"),
        ({"search": {"sampler": "tpe"}}, "Expected whole numbers for trials"),
        ({"search": {"trials": 3}}, "Expected one stage a method"),
        ({"search": {"trials": 3, "sampler": "best"}}, "Expected a sampler out of"),
        ({"protocol": 3}, "Expected a text for protocol"),
        ({"epochs": "many"}, "Expected a whole number for epochs"),
        ({"epoch": 3}, "Did you mean 'epochs'"),
    ],
)
def test_mistakes(changes, message):
    with pytest.raises(ValueError, match=message):
        sweep(**changes)


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ({"fopgn": {"lr": 1}}, "Did you mean 'fopng'"),
        ({"sgd": {"dampening": 1}}, "Expected a setting of sgd"),
        ({"sgd": {"lr": ["fast"]}}, "Expected a number for lr"),
        ({"sgd": {"rate": {"low": 0.1, "high": 1.0}}}, "Expected a setting of sgd"),
    ],
)
def test_what_does_not_exist(methods, message):
    with pytest.raises(ValueError, match=message):
        sweep(methods=methods).typed()


def test_a_range_needs_a_search():
    stage = Stage.read({"lr": {"low": 1e-3, "high": 1e-1, "log": True}}, "x")
    assert stage.ranges["lr"] == Range(low=1e-3, high=1e-1, log=True)
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
