"""Settings as people write them, read by their declarations."""

from dataclasses import fields
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fopng.lab.runs.settings import (
    defaults_of,
    method_settings,
    parse_pairs,
    read_settings,
    read_settings_file,
    unknown,
    wording,
)
from fopng.optim.registry import METHODS
from fopng.optim.settings import COUNT_OR_ALL, settings, settings_of


@settings
class Options:
    lr: Annotated[float, "the rate."] = 0.1
    count: Annotated[int, "how many."] = 80
    samples: Annotated[int | None, COUNT_OR_ALL, "of how many."] = None
    nesterov: Annotated[bool, "whether."] = False
    form: Annotated[Literal["printed", "orthogonal"], "which."] = "printed"
    note: Annotated[str, "anything."] = ""
    angles: Annotated[tuple[float, ...], "degrees."] = ()
    order: Annotated[tuple[int, ...], "classes."] = ()


SETTINGS = settings_of(Options)


def read(*assignments):
    return read_settings(parse_pairs(assignments), SETTINGS, "fopng")


@pytest.mark.parametrize("entry", METHODS.values(), ids=list(METHODS))
def test_a_method_can_be_told_all_its_settings_and_they_give_it_back(entry):
    known, defaults = method_settings(entry), defaults_of(entry)
    assert next(iter(known)) == "lr"
    assert {field.name for field in fields(entry.method)} - set(known) <= {"betas"}
    assert set(known) - set(defaults) == ({"lr"} if entry.method.default_lr is None else set())
    assert read_settings(defaults, known, entry.name) == defaults
    assert all(wording(info) for info in known.values())


@pytest.mark.parametrize(
    ("assignment", "value"),
    [
        ("lr=1e-3", 0.001),
        ("lr = 1", 1.0),
        ("count=1e3", 1000),
        ("count=9007199254740993", 9007199254740993),
        ("count=-5", -5),
        ("samples=none", None),
        ("samples=None", None),
        ("samples=full", None),
        ("samples=all", None),
        ("samples=16", 16),
        ("nesterov=true", True),
        ("nesterov=No", False),
        ("nesterov=1", True),
        ("form=orthogonal", "orthogonal"),
        ("note=a=b", "a=b"),
        ("note=none", "none"),
        ("angles=0, 22.5", (0.0, 22.5)),
        ("order=3,1", (3, 1)),
        ("order=", ()),
    ],
)
def test_values_take_the_type_of_their_setting(assignment, value):
    [found] = read(assignment).values()
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("lr", "Expected name=value, got 'lr'. Write, for example, lr=1e-3."),
        ("=1", "Expected name=value, got '=1'"),
        ("coutn=1", "Expected a setting of fopng, got 'coutn'. Did you mean 'count'? There are: angles, count,"),
        ("xyzzy=1", "Expected a setting of fopng, got 'xyzzy'. There are: angles"),
        ("lr=fast", "Expected a number for lr, got 'fast'. Write lr=VALUE"),
        ("lr=nan", "Expected a number for lr, got 'nan'"),
        ("lr=1e999", "Expected a number for lr, got '1e999'"),
        ("lr=none", "Expected a number for lr, got 'none'"),
        ("count=1.5", "Expected a whole number for count, got '1.5'"),
        ("samples=0", "Expected samples of at least 1, or None for all, got 0."),
        ("order=1,x", "Expected whole numbers parted by commas for order, got '1,x'"),
        ("samples=many", "Expected a whole number or none for samples, got 'many'"),
        ("nesterov=maybe", "Expected true or false for nesterov"),
        ("form=printd", "Expected 'printed' or 'orthogonal' for form, got 'printd'. Did you mean 'printed'?"),
        ("lr=" + "9" * 5000, "Expected a number for lr, got '999"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(assignment, message):
    with pytest.raises(ValueError) as caught:
        read(assignment)
    assert str(caught.value).startswith(message)
    assert len(str(caught.value)) < 300


def test_a_setting_given_twice_is_refused():
    with pytest.raises(ValueError, match="Expected lr once, got it twice"):
        read("lr=1", "lr=2")


def complaint(assignment):
    try:
        read(assignment)
    except ValueError as error:
        return str(error)
    return "Expected nothing else."


@given(st.text())
def test_any_text_is_a_value_or_an_error_of_one_line(text):
    for assignment in [text, *(f"{name}={text}" for name in SETTINGS)]:
        assert complaint(assignment).startswith("Expected")
        assert "\n" not in complaint(assignment)


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**100), 2**100))
def test_numbers_are_read_exactly(number, whole):
    found = read(f"lr={number!r}", f"count={whole}")
    assert found == {"lr": number, "count": whole}


@pytest.mark.parametrize(
    "written", [{"lr": True}, {"count": 1.5}, {"form": 3}, {"lr": [1]}, {"note": 1}, {"nesterov": 1}]
)
def test_values_of_a_wrong_type_from_a_file_are_refused(written):
    with pytest.raises(ValueError, match="Expected"):
        read_settings(written, SETTINGS, "fopng")


def test_a_file_sets_for_all_and_for_one(tmp_path):
    path = tmp_path / "settings.toml"
    path.write_text('lr = 1e-3\n[fopng]\nlr = 1\nsamples = "full"\n')
    found = read_settings_file(path, ["fopng", "sgd"])
    assert found == [("", "lr", 1e-3), ("fopng", "lr", 1), ("fopng", "samples", "full")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"lr = ", "Expected TOML in"),
        (b"\xff", "Expected TOML in"),
        (b"[fopgn]\nlr = 1", "Expected a table named after a method, got 'fopgn'. Did you mean 'fopng'"),
        (None, "Expected a TOML file of settings, got"),
    ],
)
def test_a_file_that_cannot_be_used_is_told(tmp_path, content, message):
    path = tmp_path / "settings.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError) as caught:
        read_settings_file(path, ["fopng", "sgd"])
    assert message in str(caught.value)


def test_nothing_known_is_said_too():
    assert unknown("a run", "x", []) == "Expected a run, got 'x'. There are: none."
