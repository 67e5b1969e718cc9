"""A run's key: the same for the same run, everywhere, and another for any other."""

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fopng.lab.runs.config import RunConfig, canonical_json
from sample_runs import config

numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
mappings = st.dictionaries(st.text(), values, max_size=5)


def test_the_key_is_the_one_published():
    assert config().key == "000bbc40c945f5c6"


def test_the_key_does_not_depend_on_the_process():
    script = "from sample_runs import config; print(config().key)"
    for seed in ("1", "2"):
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        command = [sys.executable, "-c", script]
        assert subprocess.check_output(command, env=environment, text=True).strip() == config().key


def test_equal_numbers_have_one_key():
    assert config(settings={"lr": 1e-3, "m": 1}).key == config(settings={"m": 1.0, "lr": 0.001}).key
    assert config(first_task_lr=1).key == config(first_task_lr=1.0).key
    assert config(settings={"angles": [0, 10]}).key == config(settings={"angles": (0, 10.0)}).key


SETTINGS = {"lr": float(np.nextafter(1e-5, 1)), "damping": 5e-4, "fisher_samples": None}

CHANGES = [
    *({name: "x"} for name in ("benchmark", "dataset", "scenario", "model", "method", "dtype")),
    *(
        {"settings": SETTINGS},
        {"settings": {**SETTINGS, "lr": 1e-5, "fisher_samples": 0}},
        {"benchmark_parameters": {}},
    ),
    *({"protocol": "printed"}, {"first_task_lr": None}, {"seed": 1}, {"epochs": 6}, {"batch_size": 11}),
    *({"validation": True}, {"edition": 2}),
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_whatever_can_change_a_number_changes_the_key(change):
    assert config(**change).key != config().key


@given(mappings)
def test_a_configuration_survives_json_and_pickle(settings):
    there = config(settings=settings)
    assert RunConfig.from_dict(json.loads(json.dumps(there.as_dict()))) == there
    assert RunConfig.from_dict(json.loads(there.canonical())).key == there.key
    assert pickle.loads(pickle.dumps(there)) == there


@given(mappings, st.randoms())
def test_the_order_of_names_does_not_matter(settings, random):
    names = list(settings)
    random.shuffle(names)
    there = config(settings=settings)
    assert config(settings={name: settings[name] for name in names}).key == there.key
    assert hash(config(settings={name: settings[name] for name in names})) == hash(there)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_are_exact(number):
    assert json.loads(canonical_json(number)) == number


def test_a_configuration_cannot_be_changed_through_what_it_was_given():
    settings = {"lr": 1.0, "nested": {"a": [1]}}
    there = config(settings=settings)
    settings["nested"]["a"].append(2)
    assert there.settings == {"lr": 1.0, "nested": {"a": (1,)}}
    with pytest.raises(TypeError):
        there.settings["lr"] = 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": "0"}, "Expected int for seed, got '0'"),
        ({"seed": True}, "Expected int for seed, got True"),
        ({"validation": 1}, "Expected bool for validation"),
        ({"first_task_lr": "x"}, "Expected float or int or None for first_task_lr"),
        ({"settings": [1]}, "Expected Mapping for settings"),
        ({"settings": {"lr": np.int64(1)}}, "for settings.lr, got int64"),
    ],
)
def test_a_wrong_type_is_named(change, message):
    with pytest.raises(TypeError, match=message):
        config(**change)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_do_not_compare_are_refused(number):
    with pytest.raises(ValueError, match=r"finite number for settings\.lr"):
        config(settings={"lr": number})


def test_a_configuration_of_another_version_is_refused():
    with pytest.raises(ValueError, match="another version"):
        RunConfig.from_dict({**config().as_dict(), "extra": 1})
