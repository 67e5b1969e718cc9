import json
import pickle
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from fopng.lab.data.cifar import CifarPickle
from fopng.lab.data.contents import PARTS
from fopng.lab.data.errors import BadFileError, DataError

MADE = tiny.arrays(tiny.COLOURED)
KNOWN = tiny.contents(MADE)
FORMATS = {
    "binary": (tiny.BINARY, tiny.binary_files(MADE)),
    "pickled": (tiny.PICKLED, tiny.pickled_files(MADE)),
    "pickled 4": (tiny.PICKLED, tiny.pickled_files(MADE, protocol=4)),
    "sprites": (tiny.SPRITES, tiny.sprite_files(MADE)),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_arrays(name):
    form, files = FORMATS[name]
    decoded = form.decode(files, KNOWN, "here")
    for part in PARTS:
        np.testing.assert_array_equal(decoded[part], MADE[part])
    KNOWN.check(decoded, "here")


@pytest.mark.parametrize("name", FORMATS)
def test_a_whole_file_is_within_its_limit(name):
    form, files = FORMATS[name]
    limits = form.limits(KNOWN)
    assert limits.keys() == files.keys()
    assert all(len(files[file]) <= limits[file] for file in files)


@given(st.data())
def test_no_damaged_file_is_accepted(data):
    """Some bytes carry nothing (file names in a pickle, a PNG's end): then the arrays are still the right ones."""
    form, files = FORMATS[data.draw(st.sampled_from(sorted(FORMATS)))]
    name = data.draw(st.sampled_from(sorted(files)))
    damaged = data.draw(tiny.damages(files, name))
    decoded, refusal = tiny.attempt(decode_and_check, form, {**files, name: damaged})
    if refusal:
        assert "here" in refusal
    else:
        assert all(np.array_equal(decoded[part], MADE[part]) for part in PARTS)


def decode_and_check(form, files):
    decoded = form.decode(files, KNOWN, "here")
    KNOWN.check(decoded, "here")
    return decoded


@pytest.mark.parametrize(
    ("batch", "problem"),
    [
        ([1, 2], "Expected a dictionary with 'data'"),
        ({"labels": [1]}, "got the keys"),
        ({"data": [1], "labels": [1]}, "rows of 48 bytes"),
        ({"data": np.zeros((2, 48), np.uint8), "labels": [1]}, "Expected 2 labels"),
        ({"data": np.zeros((2, 48), np.uint8), "labels": [0, 3]}, "labels from 0 to 2"),
        ({"data": np.zeros((2, 48), np.uint8), "labels": [0, [1]]}, "nested lists"),
        ({"data": np.zeros((2, 48), np.uint8), "labels": [0.5, 1]}, "whole numbers"),
    ],
)
def test_pickles_of_other_things(batch, problem):
    files = {**tiny.pickled_files(MADE), "two": pickle.dumps(batch, protocol=2)}
    with pytest.raises(BadFileError, match=problem) as caught:
        tiny.PICKLED.decode(files, KNOWN, "folder")
    assert "folder: two" in str(caught.value)


def test_labels_key_of_the_fine_classes():
    form = CifarPickle(("one", "two"), "test", labels_key="fine_labels")
    with pytest.raises(BadFileError, match="'fine_labels'"):
        form.decode(tiny.pickled_files(MADE), KNOWN, "x")


@pytest.mark.parametrize("labels", [b"{", b"[" * 100_000, json.dumps({"a": 1}).encode(), b"[1e400]", b"\xff"])
def test_json_of_other_things(labels):
    with pytest.raises(BadFileError, match=r"train\.json"):
        tiny.SPRITES.decode({**tiny.sprite_files(MADE), "train.json": labels}, KNOWN, "x")


def test_sprites_without_pillow_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DataError, match=r"fopng\[images\]"):
        tiny.SPRITES.decode(FORMATS["sprites"][1], KNOWN, "x")
