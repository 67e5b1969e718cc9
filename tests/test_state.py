"""A nested state comes back as it was, to the bit."""

import collections
import json
import math
import random
import struct

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from fopng.lab.storage.state import decode, encode


def round_trip(state):
    tree, tensors = encode(state)
    return decode(json.loads(json.dumps(tree)), safetensors.torch.load(safetensors.torch.save(tensors)))


def identical(first, second):
    """Equal in type, order and every bit."""
    if type(first) is not type(second):
        return False
    if isinstance(first, torch.Tensor):
        same = first.dtype == second.dtype and first.shape == second.shape
        return same and raw(first) == raw(second)
    if isinstance(first, np.ndarray):
        return (first.dtype, first.shape, first.tobytes()) == (second.dtype, second.shape, second.tobytes())
    if isinstance(first, dict):
        return identical(list(first.items()), list(second.items()))
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(identical, first, second))
    if isinstance(first, float):
        return struct.pack("d", first) == struct.pack("d", second)
    return first == second


def raw(tensor):
    return bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist())


keys = st.text() | st.integers() | st.booleans() | st.none() | st.tuples(st.integers(), st.text())
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
states = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(tuple) | st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=20,
)


@given(states)
def test_plain_data_round_trips(state):
    assert identical(round_trip(state), state)


DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool, torch.complex64, torch.complex128),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3)], ids=str)
def test_tensors_of_every_dtype_round_trip_whatever_their_bits(dtype, shape):
    size = torch.empty((), dtype=dtype).element_size()
    bits = torch.randint(0, 2 if dtype == torch.bool else 256, (math.prod(shape) * size,), dtype=torch.uint8)
    tensor = bits.view(dtype).reshape(shape)
    assert identical(round_trip({"a": [tensor]}), {"a": [tensor]})


PAYLOAD = struct.unpack("d", bytes.fromhex("010000000000f87f"))[0]


@pytest.mark.parametrize(
    "state",
    [
        [math.nan, PAYLOAD, -0.0, 0.0, math.inf, -math.inf, 5e-324, 2**63, -(2**70), 1e22, True, 1, 1.0],
        torch.tensor([math.nan, -0.0, math.inf, PAYLOAD], dtype=torch.float64),
        torch.tensor([2**63 - 1, -(2**63)]),
    ],
    ids=["plain", "floats", "integers"],
)
def test_special_numbers_keep_their_bits(state):
    assert identical(round_trip(state), state)


def test_random_states_go_on_where_they_were():
    legacy = np.random.RandomState(3)
    modern, python, torchs = np.random.default_rng(4), random.Random(5), torch.Generator().manual_seed(6)
    saved = round_trip(
        (legacy.get_state(), modern.bit_generator.state, python.getstate(), torchs.get_state(), torch.get_rng_state())
    )
    expected = legacy.rand(), modern.random(), python.random(), torch.rand(3, generator=torchs).tolist()
    legacy.set_state(saved[0])
    modern.bit_generator.state = saved[1]
    python.setstate(saved[2])
    torchs.set_state(saved[3])
    assert expected == (legacy.rand(), modern.random(), python.random(), torch.rand(3, generator=torchs).tolist())
    torch.set_rng_state(saved[4])


def test_tied_tensors_are_stored_once_and_stay_tied():
    linear = torch.nn.Linear(3, 3)
    tied = torch.nn.Sequential(linear, linear)
    tree, tensors = encode(tied.state_dict())
    assert len(tensors) == 2
    restored = decode(tree, tensors)
    assert restored["0.weight"] is restored["1.weight"]
    tied.load_state_dict(restored)


def test_views_of_one_memory_that_are_not_the_same_stay_apart():
    base = torch.arange(12.0).reshape(3, 4)
    state = [base, base.T, base[0], base[1], base.reshape(-1), base[:0], base[3:]]
    assert identical(round_trip(state), state)


def test_a_conjugate_or_negative_view_is_not_taken_for_its_origin():
    values = torch.tensor([1 + 2j, 3 - 4j])
    state = [values, values.conj(), values.imag, values.conj().imag]
    assert [tensor.tolist() for tensor in round_trip(state)] == [tensor.tolist() for tensor in state]


def test_mappings_of_other_kinds_come_back_as_dictionaries():
    assert identical(round_trip(collections.OrderedDict(b=1, a=2)), {"b": 1, "a": 2})


Point = collections.namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"model": [object()]}, r"got object at state\['model'\]\[0\]"),
        (lambda: 0, "got function at state"),
        ({1, 2}, "got set"),
        (b"x", "got bytes"),
        (np.float64(1), "got float64"),
        (Point(1, 2), "got Point"),
        (np.array([object()]), "Expected an array of numbers, got object"),
        (np.array(["a"]), "Expected an array of numbers"),
        ({torch.zeros(1): 1}, "as keys, got Tensor"),
        (torch.eye(2).to_sparse(), "Expected dense tensors"),
        (torch.zeros(1, device="meta"), "Expected dense tensors"),
    ],
)
def test_what_cannot_be_saved_is_refused_by_its_place(state, message):
    with pytest.raises(TypeError, match=message):
        encode(state)
