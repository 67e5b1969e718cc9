"""What a sweep tries, in which rounds, and what it measures on test; against the obvious search over all of it."""

import itertools
import tomllib

import pytest

from fopng.lab.runs.config import canonical_json
from fopng.lab.runs.request import configurations
from fopng.lab.sweep import chosen_toml, conduct, foresee, parse_sweep
from sweep_runs import measured

RATES, DAMPINGS = (0.1, 0.2, 0.4), (1e-3, 1e-2, 1e-1)


def accuracy(config):
    """A made-up landscape, highest at lr = 0.2 and damping = 1e-2; the best rate depends on nothing else."""
    settings = config.settings
    return 0.9 - abs(settings["lr"] - 0.2) - 0.1 * abs(settings.get("damping", 1e-2) - 1e-2) + config.seed * 1e-6


class Laboratory:
    """Does runs at once, and remembers in which rounds they came."""

    def __init__(self, fails=lambda config: False):
        self.rounds, self.experiments, self.done, self.fails = [], [], {}, fails

    def __call__(self, configs, experiment=""):
        assert len({config.key for config in configs}) == len(configs)
        self.rounds.append(list(configs))
        self.experiments.append(experiment)
        results = [measured(config, accuracy(config)) for config in configs if not self.fails(config)]
        self.done |= {result.config.key: result for result in results}
        return results

    def find(self, config):
        return self.done.get(config.key)


def sweep(methods, **changes):
    members = {"benchmarks": ["split-digits"], "validation": {"seeds": [100, 101]}, "test": {"seeds": [0, 1, 2]}}
    return parse_sweep({**members, "methods": methods, **changes}, "mine")


def choice(outcome, method="fopng"):
    [response] = [each for each in outcome.responses if each.method == method]
    return None if response.chosen is None else dict(response.chosen.settings)


def test_a_grid_finds_what_a_plain_search_finds():
    laboratory = Laboratory()
    outcome = conduct(sweep({"fopng": {"lr": list(RATES), "damping": list(DAMPINGS)}}), laboratory)
    points = itertools.product(RATES, DAMPINGS)
    best = max(points, key=lambda point: 0.9 - abs(point[0] - 0.2) - 0.1 * abs(point[1] - 1e-2))
    assert choice(outcome) == {"lr": best[0], "damping": best[1]}
    assert [len(configs) for configs in laboratory.rounds] == [9 * 2, 3]
    assert laboratory.experiments == ["sweep/mine", "chosen/mine"]
    assert all(config.validation for config in laboratory.rounds[0])
    assert [(c.seed, c.validation, c.settings["lr"]) for c in laboratory.rounds[1]] == [
        (s, False, 0.2) for s in (0, 1, 2)
    ]
    assert [result.config.seed for result in outcome.results] == [0, 1, 2]


def test_stages_keep_what_was_chosen():
    laboratory = Laboratory()
    stages = [{"lr": list(RATES), "damping": 1e-3}, {"damping": list(DAMPINGS)}]
    outcome = conduct(sweep({"fopng": stages}), laboratory)
    assert choice(outcome) == {"lr": 0.2, "damping": 1e-2}
    assert {c.settings["damping"] for c in laboratory.rounds[0]} == {1e-3}
    assert {c.settings["lr"] for c in laboratory.rounds[1]} == {0.2}
    assert {c.settings["damping"] for c in laboratory.rounds[1]} == set(DAMPINGS)


def test_methods_and_benchmarks_share_a_round():
    laboratory = Laboratory()
    methods = {"sgd": {"lr": list(RATES)}, "fopng": [{"lr": list(RATES)}, {"damping": list(DAMPINGS)}]}
    conduct(sweep(methods, benchmarks=["split-digits", "rotated-digits"]), laboratory)
    rounds = [sorted({(c.benchmark, c.method) for c in configs}) for configs in laboratory.rounds]
    both = ["rotated-digits", "split-digits"]
    assert rounds == [[(b, m) for b in both for m in ("fopng", "sgd")], [(b, "fopng") for b in both], rounds[0]]


def test_without_test_seeds_it_ends_with_the_choice():
    laboratory = Laboratory()
    outcome = conduct(sweep({"sgd": {"lr": list(RATES)}}, test={}), laboratory)
    assert (choice(outcome, "sgd"), outcome.results, len(laboratory.rounds)) == ({"lr": 0.2}, (), 1)


def test_a_method_without_a_choice_is_left_out_of_what_follows():
    laboratory = Laboratory()
    rule = {"first_task_at_least": 1.0}
    outcome = conduct(sweep({"fopng": [{"lr": [0.1]}, {"damping": [1.0]}]}, selection=rule), laboratory)
    assert (choice(outcome), outcome.results, len(laboratory.rounds)) == (None, (), 1)
    text = chosen_toml(outcome.sweep, "split-digits", outcome.responses)
    assert "fopng" not in tomllib.loads(text)
    assert "# fopng: 1 of 1 points refused" in text


def test_runs_that_fail_are_known_and_cost_their_point():
    laboratory = Laboratory(fails=lambda config: config.settings["lr"] == 0.2 and config.seed == 101)
    outcome = conduct(sweep({"sgd": {"lr": list(RATES)}, "ogd": {"lr": [0.2]}}), laboratory)
    assert choice(outcome, "sgd") == {"lr": 0.1}
    assert choice(outcome, "ogd") == {"lr": 0.2}
    assert [(config.method, config.seed) for config in outcome.failed] == [("sgd", 101), ("ogd", 101)]


def test_a_method_that_fails_altogether():
    outcome = conduct(
        sweep({"sgd": {"lr": [0.1]}, "ogd": {"lr": [0.2]}}), Laboratory(lambda config: config.method == "sgd")
    )
    assert [response.method for response in outcome.responses] == ["ogd"]
    assert {config.method for config in outcome.failed} == {"sgd"}


def test_what_would_be_done():
    laboratory = Laboratory()
    asked = sweep({"fopng": [{"lr": list(RATES), "damping": 1e-3}, {"damping": list(DAMPINGS)}]})
    seen = foresee(asked, laboratory.find)
    assert (len(seen.there), len(seen.missing), seen.at_most) == (0, 6, 6 + 6 + 3)
    laboratory(seen.missing[:4])
    seen = foresee(asked, laboratory.find)
    assert (len(seen.there), len(seen.missing)) == (4, 2)
    conduct(asked, laboratory)
    seen = foresee(asked, laboratory.find)
    assert (len(seen.there), len(seen.missing)) == (15, 0)


def test_the_chosen_settings_give_the_runs_on_test(tmp_path):
    changes = {"benchmark": {"tasks": 2}, "epochs": 1}
    methods = {
        "fopng": {"lr": list(RATES), "fisher_samples": ["full", 16], "projection": "orthogonal"},
        "sgd": {"lr": [0.1]},
    }
    outcome = conduct(sweep(methods, **changes), Laboratory())
    path = tmp_path / "chosen.toml"
    path.write_text(chosen_toml(outcome.sweep, "split-digits", outcome.responses), encoding="utf-8")
    assert tomllib.loads(path.read_text())["fopng"]["lr"] == 0.2
    again = configurations(benchmark="split-digits", methods=["sgd", "fopng"], seeds=[0, 1, 2], settings_file=path)
    wanted = {canonical_json(result.config.as_dict()) for result in outcome.results}
    assert {canonical_json(config.as_dict()) for config in again} == wanted


def test_a_search_draws_tries_and_learns():
    pytest.importorskip("optuna")
    space = {"lr": {"low": 0.01, "high": 1.0, "log": True}, "gradients_per_task": {"low": 2, "high": 5}}
    laboratory = Laboratory()
    asked = sweep({"fopng": space}, search={"trials": 12, "at_once": 4})
    outcome = conduct(asked, laboratory)
    assert [len(configs) for configs in laboratory.rounds] == [8, 8, 8, 3]
    [response] = outcome.responses
    best = max(response.points, key=lambda point: point.accuracy.mean)
    assert dict(response.chosen.settings) == dict(best.settings)
    assert {config.settings["lr"] for config in laboratory.rounds[3]} == {best.settings["lr"]}
    again = Laboratory()
    conduct(asked, again)
    assert [[c.key for c in configs] for configs in again.rounds] == [
        [c.key for c in configs] for configs in laboratory.rounds
    ]
