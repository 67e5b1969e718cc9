import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import fopng.lab.data.splits
from fopng.lab.data.pixels import PixelMap, Scaling
from fopng.lab.data.splits import _KEPT, ArraySplit, DatasetSplit

IMAGES = np.arange(50 * 2 * 3 * 3, dtype=np.uint32).astype(np.uint8).reshape(50, 2, 3, 3)
LABELS = np.arange(50) % 7


def whole():
    return ArraySplit(IMAGES, LABELS, scaling=Scaling(255))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def walk(batches):
    pairs = list(batches)
    return torch.cat([x for x, _ in pairs]), torch.cat([y for _, y in pairs])


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_tensors_are_float32_and_int64():
    x, y = whole().tensors()
    assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
    torch.testing.assert_close(x, torch.from_numpy(IMAGES) / 255)
    assert y.tolist() == LABELS.tolist()


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("uint8", torch.float32),
        ("bool", torch.float32),
        ("float64", torch.float32),
        ("int64", torch.int64),
        ("int8", torch.int64),
    ],
)
@pytest.mark.parametrize("kind", ["array", "dataset"])
def test_whole_numbers_stay_whole(kind, dtype, expected):
    inputs = np.array([[1, 0], [1, 1]]).astype(dtype)
    split = ArraySplit(inputs, np.arange(2))
    if kind == "dataset":
        split = DatasetSplit(TensorDataset(torch.from_numpy(inputs), torch.arange(2)))
    x, _ = split.tensors()
    assert x.dtype == expected
    assert x.tolist() == inputs.astype(float).tolist()


@pytest.mark.parametrize("size", [1, 7, 10, 50, 64])
def test_batches_in_order_are_the_split(size):
    batches = whole().batches(size)
    assert len(batches) == len(list(batches)) == -(-50 // size)
    assert all(len(x) == len(y) <= size for x, y in batches)
    assert same(walk(batches), whole().tensors())


def test_the_generator_alone_decides_the_order_and_epochs_differ():
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    one = whole().batches(8, generator=generator(3))
    epochs = [walk(one), walk(one)]
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not same(*epochs)
    torch.manual_seed(6)
    two = whole().batches(8, generator=generator(3))
    assert same(walk(two), epochs[0])
    assert same(walk(two), epochs[1])
    assert not same(walk(whole().batches(8, generator=generator(4))), epochs[0])


@given(st.integers(1, 60), st.integers(1, 70), st.integers(0, 2**40), st.integers(1, 2000))
def test_an_epoch_is_the_rows_of_order_whatever_the_size_of_chunks(samples, size, seed, chunk):
    """Inputs and targets stay together, and each sample comes once."""
    split = ArraySplit(np.arange(samples, dtype=np.float32)[:, None], np.arange(samples))
    order = split.order(generator(seed))
    assert sorted(order.tolist()) == list(range(samples))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fopng.lab.data.splits, "CHUNK_NUMBERS", chunk)
        x, y = walk(split.batches(size, generator=generator(seed)))
    assert y.tolist() == x[:, 0].long().tolist() == order.tolist()


def test_a_part_of_the_rows():
    rows = np.array([4, 2, 40])
    split = ArraySplit(IMAGES, np.array([0, 1, 0]), rows=rows)
    x, y = split.read(torch.tensor([2, 0]))
    assert torch.equal(x, torch.from_numpy(IMAGES[[40, 4]]).float())
    assert y.tolist() == [0, 0]
    assert len(split) == 3


def test_reading_does_not_write_to_the_shared_array():
    images = IMAGES.copy()
    images.flags.writeable = False
    split = ArraySplit(images, LABELS, pixels=PixelMap(np.array([0, -1, 2, 3, 4, 5, 6, 7, -1])), scaling=Scaling(2))
    x, _ = split.tensors()
    x.zero_()
    assert np.array_equal(images, IMAGES)


def test_splits_are_checked():
    for size in (0, -1):
        with pytest.raises(ValueError, match=f"batch size of 1 or more, got {size}"):
            whole().batches(size)
    with pytest.raises(ValueError, match="each of 50 samples, got 49"):
        ArraySplit(IMAGES, LABELS[1:])


@pytest.mark.parametrize("rows", [None, np.arange(40)[::-1].copy()])
@pytest.mark.parametrize("count", [1, 13, 99])
def test_the_first_samples_are_the_first(rows, count):
    labels = LABELS if rows is None else LABELS[rows]
    split = ArraySplit(IMAGES, labels, rows=rows, pixels=PixelMap(np.arange(9)[::-1].copy()), scaling=Scaling(255))
    few = split.first(count)
    assert len(few) == min(count, len(split))
    assert same(few.tensors(), [tensor[:count] for tensor in split.tensors()])


class TestDatasetSplit:
    def test_it_gives_what_the_arrays_give(self):
        split = DatasetSplit(TensorDataset(*whole().tensors()))
        assert split.input_shape == whole().input_shape
        assert torch.equal(split.targets, whole().targets)
        assert same(walk(split.batches(8, generator=generator())), walk(whole().batches(8, generator=generator())))

    def test_a_dataset_without_a_length(self):
        class Endless(IterableDataset):
            def __iter__(self):
                yield 1, 2

        with pytest.raises(ValueError, match="with a length and at least one sample, got Endless"):
            DatasetSplit(Endless())

    @pytest.mark.parametrize(
        ("items", "problem"),
        [([1], "Expected \\(input, target\\)"), ([("text", 1)], "got str. Give the dataset a transform")],
    )
    def test_other_items(self, items, problem):
        class Items(Dataset):
            def __len__(self):
                return len(items)

            def __getitem__(self, row):
                return items[row]

        with pytest.raises(TypeError, match=problem):
            DatasetSplit(Items()).tensors()


class TestKeptOnADevice:
    """What a GPU does, done here: all inputs there, once for all splits that use them."""

    @pytest.mark.parametrize("pixels", [None, PixelMap(np.arange(9)[::-1].copy())])
    @pytest.mark.parametrize("rows", [None, np.array([3, 1, 8, 0])])
    def test_they_are_those_that_are_read(self, rows, pixels):
        images = np.random.default_rng(0).integers(0, 256, (10, 2, 3, 3), dtype=np.uint8)
        wanted = np.arange(10)[::-1].copy() if rows is None else rows[::-1].copy()
        split, other = (ArraySplit(images, np.arange(len(wanted)), rows=rows, pixels=pixels) for _ in range(2))
        there = split._taken_there(wanted, torch.device("cpu"))
        assert torch.equal(there, split._taken_here(wanted))
        other._taken_there(wanted, torch.device("cpu"))
        assert split._kept is other._kept
        assert split.same_samples(other)

    def test_parts_and_copies_are_other_arrays(self):
        parts = [IMAGES[:3], IMAGES[3:6], IMAGES[:3].copy()]
        splits = [ArraySplit(part, np.arange(3)) for part in parts]
        kept = [split._taken_there(np.arange(3), torch.device("cpu")) for split in splits]
        assert [int(part.flatten()[0]) for part in kept] == [int(part.ravel()[0]) for part in parts]
        assert not splits[0].same_samples(splits[1])
        assert not splits[0].same_samples(splits[2])

    def test_they_go_with_the_last_split_and_into_no_copy(self):
        split = ArraySplit(IMAGES, LABELS)
        before = len(_KEPT)
        split._taken_there(np.arange(3), torch.device("cpu"))
        assert len(_KEPT) == before + 1
        assert pickle.loads(pickle.dumps(split))._kept is None
        del split
        assert len(_KEPT) == before


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("rows", [None, np.arange(40)[::-1].copy()])
@pytest.mark.parametrize("pixels", [None, PixelMap(np.array([-1, *range(8)]))])
@pytest.mark.parametrize("kept", [False, True])
def test_a_device_has_the_same_bits(rows, pixels, kept):
    """Whether its inputs are kept there, as those that nobody writes to are, or sent there."""
    images = IMAGES.copy()
    images.flags.writeable = not kept
    scaling = Scaling(255, (0.4, 0.5), (0.2, 0.3))
    split = ArraySplit(images, LABELS if rows is None else LABELS[rows], rows=rows, pixels=pixels, scaling=scaling)
    here, there = split.tensors(), split.tensors("cuda")
    assert same(here, [tensor.cpu() for tensor in there])
    assert (split._kept is not None) == kept
