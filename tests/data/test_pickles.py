import codecs
import os
import pickle
import pickletools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny
from fopng.lab.data.errors import BadFileError
from fopng.lab.data.pickles import read_pickle

# A batch as Python 2 wrote it: protocol 2, text as byte strings, the array's bytes in the state of its object.
PYTHON_2 = (
    b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85U\x01b\x87Rq\x05"
    b"(K\x01K\x02K\x03\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87Rq\x07(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xff"
    b"K\x00tb\x89U\x06\x00\x01\x02\x03\x04\x05tbU\x06labelsq\x08]q\x09(K\x01K\x00eu."
)

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(plain, st.integers(2, 4))
def test_plain_data_comes_back(value, protocol):
    read, refusal = tiny.attempt(read_pickle, pickle.dumps(value, protocol=protocol), "x")
    assert "eight deep" in refusal if refusal else read == value


def test_what_python_2_wrote():
    batch = read_pickle(PYTHON_2, "x")
    np.testing.assert_array_equal(batch[b"data"], np.arange(6, dtype=np.uint8).reshape(2, 3))
    assert batch[b"labels"] == [1, 0]


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_arrays_of_any_numpy(protocol):
    array = np.arange(12, dtype=np.uint8).reshape(3, 4)
    np.testing.assert_array_equal(read_pickle(pickle.dumps(array, protocol=protocol), "x"), array)


class Malice:
    def __reduce__(self):
        return os.mkdir, ("it-was-called",)


@pytest.mark.parametrize(
    "value",
    [
        Malice(),
        {"data": [Malice()]},
        codecs.encode,
        np.float32(1),
        {1, 2},
        bytearray(b"x"),
        1j,
        np.zeros(3, dtype=object),
    ],
    ids=lambda value: type(value).__name__,
)
def test_nothing_else_is_built_or_called(value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for protocol in range(6):
        with pytest.raises(BadFileError, match="batch_1: Expected a pickle of plain arrays"):
            read_pickle(pickle.dumps(value, protocol=protocol), "batch_1")
    assert not (tmp_path / "it-was-called").exists()


@pytest.mark.parametrize("name", ["os\nsystem", "builtins\neval", "numpy\nload", "numpy.core.multiarray\nscalar"])
def test_no_name_is_looked_up(name):
    with pytest.raises(BadFileError, match="which is no plain data"):
        read_pickle(b"c" + name.encode() + b"\n.", "x")


def test_a_number_cannot_ask_for_all_memory():
    with pytest.raises(BadFileError, match="memo entry 4294967295"):
        read_pickle(b"\x80\x02Nr\xff\xff\xff\xff.", "x")


def test_numbers_of_other_types_are_refused():
    with pytest.raises(BadFileError, match="not of unsigned bytes"):
        read_pickle(pickle.dumps(np.zeros(3), protocol=2), "x")


@pytest.mark.parametrize(
    ("whole", "spoiled", "problem"),
    [
        (b"K\x02K\x03\x86", b"K\x02K\x04\x86", r"6 bytes for an array of shape \(2, 4\)"),
        (b"tb\x89U\x06", b"tb\x88U\x06", "not rows of unsigned bytes"),
        (b"U\x02u1", b"U\x02O8", "not of unsigned bytes"),
    ],
)
def test_an_array_that_lies_about_itself(whole, spoiled, problem):
    assert PYTHON_2.count(whole) == 1
    with pytest.raises(BadFileError, match=problem):
        read_pickle(PYTHON_2.replace(whole, spoiled), "x")


def test_nesting_has_an_end():
    value = []
    for _ in range(50):
        value = [value]
    with pytest.raises(BadFileError, match="eight deep"):
        read_pickle(pickle.dumps(value), "x")


@settings(max_examples=300)
@given(st.data())
def test_a_damaged_pickle_is_plain_or_refused(data):
    made = tiny.arrays(tiny.COLOURED)
    whole = data.draw(
        st.sampled_from([PYTHON_2, *(tiny.pickled_batch(made["test-images"], made["test-labels"], p) for p in (2, 4))])
    )
    changes = data.draw(st.lists(st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255)), max_size=4))
    damaged = bytearray(whole[: data.draw(st.integers(0, len(whole)) | st.just(len(whole)))])
    for position, value in changes:
        if position < len(damaged):
            damaged[position] = value
    value, refusal = tiny.attempt(read_pickle, bytes(damaged), "batch")
    assert refusal.startswith("batch: Expected a pickle of plain arrays") if refusal else is_plain(value)


@given(st.lists(st.sampled_from(pickletools.opcodes), max_size=12), st.binary(max_size=40))
def test_any_opcodes_are_plain_or_refused(opcodes, arguments):
    stream = b"".join(o.code.encode("latin1") + arguments[i : i + 4] for i, o in enumerate(opcodes)) + b"."
    value, refusal = tiny.attempt(read_pickle, stream, "x")
    assert refusal or is_plain(value)


def is_plain(value):
    if isinstance(value, dict):
        return all(map(is_plain, value)) and all(map(is_plain, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(is_plain, value))
    return value is None or type(value) in (bool, int, float, str, bytes, np.ndarray)
