import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from fopng.lab.data.errors import BadFileError
from fopng.lab.data.idx import Idx, parse_idx


@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 3, 4)])
def test_an_array_comes_back(shape):
    array = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    np.testing.assert_array_equal(parse_idx(tiny.idx_bytes(array), "x"), array)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "Expected an IDX file"),
        (b"\x1f\x8b\x08\x08rest", "Expected an IDX file"),
        (b"\0\0\x0d\x01\0\0\0\0", "got 0x0d"),
        (b"\0\0\x08\x03\0\0\0\x01", "sizes of 3 dimensions"),
        (b"\0\0\x08\x00", "sizes of some dimensions"),
        (b"\0\0\x08\x01\0\0\0\x05abcd", "Expected 5 bytes for shape"),
        (b"\0\0\x08\x01\0\0\0\x03abcd", "Expected 3 bytes for shape"),
        (b"\0\0\x08\x02\xff\xff\xff\xff\xff\xff\xff\xff", "got 0"),
        (b"\0\0\x08\xc8" + b"\0\0\0\1" * 200 + b"x", "got 200 dimensions"),
    ],
)
def test_what_is_not_idx_is_refused(data, problem):
    with pytest.raises(BadFileError, match=problem) as caught:
        parse_idx(data, "some/labels")
    assert str(caught.value).startswith("some/labels: ")


@given(st.binary(max_size=64))
def test_any_bytes_are_an_array_or_refused(data):
    array, refusal = tiny.attempt(parse_idx, data, "file")
    assert refusal.startswith("file: ") if refusal else tiny.idx_bytes(array) == data


@given(st.data())
def test_no_damaged_file_is_accepted(data):
    """Cut, extended, changed or mislabelled: the decoder or the digest refuses it, and names the place."""
    made = tiny.arrays()
    files, known = tiny.idx_files(made), tiny.contents(made)
    name = data.draw(st.sampled_from(sorted(files)))
    damaged = data.draw(tiny.damages(files, name))
    with pytest.raises(BadFileError, match="here"):
        known.check(Idx().decode({**files, name: damaged}, known, "here"), "here")


def test_dotted_names():
    assert sorted(Idx(dotted=True).files.values())[0] == "t10k-images.idx3-ubyte"
