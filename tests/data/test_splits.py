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


def test_tensors_are_float32_and_int64():
    x, y = whole().tensors()
    assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
    torch.testing.assert_close(x, torch.from_numpy(IMAGES) / 255)
    assert y.tolist() == LABELS.tolist()


@pytest.mark.parametrize("size", [1, 7, 10, 50, 64])
def test_batches_in_order_are_the_split(size):
    batches = whole().batches(size)
    assert len(batches) == len(list(batches)) == -(-50 // size)
    assert all(len(x) == len(y) <= size for x, y in batches)
    for walked, straight in zip(walk(batches), whole().tensors(), strict=True):
        assert torch.equal(walked, straight)


def test_an_epoch_has_each_sample_once_and_epochs_differ():
    batches = whole().batches(8, generator=generator())
    first, second = walk(batches), walk(batches)
    straight = whole().tensors()[0].flatten(1)
    for x, _ in (first, second):
        assert torch.equal(x.flatten(1).sort(0).values, straight.sort(0).values)
    assert not torch.equal(first[0], second[0])


def test_the_generator_alone_decides_the_order():
    torch.manual_seed(5)
    one = whole().batches(8, generator=generator(3))
    orders = [walk(one)[0], walk(one)[0]]
    torch.manual_seed(6)
    two = whole().batches(8, generator=generator(3))
    assert torch.equal(walk(two)[0], orders[0])
    assert torch.equal(walk(two)[0], orders[1])
    assert not torch.equal(walk(whole().batches(8, generator=generator(4)))[0], orders[0])


def test_an_epoch_is_the_rows_of_order():
    order = whole().order(generator(3))
    assert sorted(order.tolist()) == list(range(50))
    x, y = walk(whole().batches(8, generator=generator(3)))
    assert torch.equal(x, whole().tensors()[0][order])
    assert torch.equal(y, whole().tensors()[1][order])


def test_walking_leaves_the_global_random_state_alone():
    before = torch.random.get_rng_state()
    list(whole().batches(8, generator=generator()))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_order_does_not_depend_on_the_size_of_chunks(monkeypatch):
    large = walk(whole().batches(4, generator=generator()))
    monkeypatch.setattr(fopng.lab.data.splits, "CHUNK_NUMBERS", 100)
    small = walk(whole().batches(4, generator=generator()))
    assert all(torch.equal(a, b) for a, b in zip(large, small, strict=True))


def test_x_and_y_stay_together():
    x, y = walk(whole().batches(6, generator=generator()))
    row = (x[:, 0, 0, 0] * 255).round().long()
    first = torch.from_numpy(IMAGES[:, 0, 0, 0].astype(np.int64))
    for value, label in zip(row, y, strict=True):
        assert label in torch.from_numpy(LABELS)[first == value]


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


def test_other_numbers_are_taken_as_they_are():
    x, _ = ArraySplit(np.array([[1.5, -2.0]]), np.array([3])).tensors()
    assert x.tolist() == [[1.5, -2.0]]


@pytest.mark.parametrize("size", [0, -1])
def test_batches_have_a_size(size):
    with pytest.raises(ValueError, match=f"batch size of 1 or more, got {size}"):
        whole().batches(size)


def test_every_sample_has_a_target():
    with pytest.raises(ValueError, match="each of 50 samples, got 49"):
        ArraySplit(IMAGES, LABELS[1:])


@given(st.integers(1, 60), st.integers(1, 70), st.integers(0, 2**40))
def test_any_size_and_seed_give_each_sample_once(samples, size, seed):
    split = ArraySplit(np.arange(samples, dtype=np.float32)[:, None], np.arange(samples))
    x, y = walk(split.batches(size, generator=generator(seed)))
    assert sorted(y.tolist()) == list(range(samples))
    assert x[:, 0].long().tolist() == y.tolist()


class TestDatasetSplit:
    def test_it_gives_what_the_arrays_give(self):
        x, y = whole().tensors()
        split = DatasetSplit(TensorDataset(x, y))
        assert split.input_shape == whole().input_shape
        assert torch.equal(split.targets, y)
        mine = walk(split.batches(8, generator=generator()))
        arrays = walk(whole().batches(8, generator=generator()))
        assert all(torch.equal(a, b) for a, b in zip(mine, arrays, strict=True))

    def test_numpy_and_numbers(self):
        class Pairs(Dataset):
            def __len__(self):
                return 3

            def __getitem__(self, row):
                return np.full((2,), row, dtype=np.float64), row

        x, y = DatasetSplit(Pairs()).tensors()
        assert x.dtype == torch.float32
        assert y.tolist() == [0, 1, 2]

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


@pytest.mark.parametrize("pixels", [None, PixelMap(np.arange(9)[::-1].copy())])
@pytest.mark.parametrize("rows", [None, np.array([3, 1, 8, 0])])
def test_images_kept_on_a_device_are_those_that_are_read(rows, pixels):
    """What a GPU does, done here: all images there, once for all that use them."""
    images = np.random.default_rng(0).integers(0, 256, (10, 2, 3, 3), dtype=np.uint8)
    wanted = np.arange(10)[::-1].copy() if rows is None else rows[::-1].copy()
    split, other = (ArraySplit(images, np.arange(len(wanted)), rows=rows, pixels=pixels) for _ in range(2))
    there = split._taken_there(wanted, torch.device("cpu"))
    assert torch.equal(there, split._taken_here(wanted))
    other._taken_there(wanted, torch.device("cpu"))
    assert split._kept is other._kept


def test_a_file_that_is_opened_twice_is_one(tmp_path):
    """As a plain array over the mapped memory too; another part of it is another."""
    path = tmp_path / "images.npy"
    np.save(path, np.arange(24, dtype=np.uint8).reshape(6, 1, 2, 2))
    first, second = (np.asarray(np.load(path, mmap_mode="r")) for _ in range(2))
    made = [ArraySplit(images, np.arange(len(images))) for images in (first, second, first[:3])]
    assert made[0].same_samples(made[1])
    assert not made[0].same_samples(made[2])
    assert not ArraySplit(first[:3], np.arange(3)).same_samples(ArraySplit(first[3:], np.arange(3)))
    # parts and copies of a mapped file still name it, or name nothing
    mapped = np.load(path, mmap_mode="r")
    for cut in (lambda x, rows: x[rows], lambda x, rows: x[rows].astype(np.float32), lambda x, rows: x[rows].copy()):
        one, other = (np.asarray(cut(mapped, rows)) for rows in (slice(0, 3), slice(3, 6)))
        assert not ArraySplit(one, np.arange(3)).same_samples(ArraySplit(other, np.arange(3)))
        kept = [ArraySplit(part, np.arange(3))._taken_there(np.arange(3), torch.device("cpu")) for part in (one, other)]
        assert [part.flatten()[0].item() for part in kept] == [0, 12]


def test_a_file_that_is_written_anew_is_another(tmp_path):
    path, made = tmp_path / "images.npy", []
    for value in (1, 2):
        np.save(tmp_path / "next.npy", np.full((6, 1, 2, 2), value, dtype=np.uint8))
        (tmp_path / "next.npy").replace(path)
        made.append(ArraySplit(np.load(path, mmap_mode="r"), np.arange(6)))
    assert not made[0].same_samples(made[1])
    kept = [split._taken_there(np.arange(6), torch.device("cpu")) for split in made]
    assert [images.flatten()[0].item() for images in kept] == [1, 2]


def test_what_is_kept_on_a_device_goes_with_the_last_split_and_into_no_copy(tmp_path):
    np.save(tmp_path / "images.npy", IMAGES)
    split = ArraySplit(np.load(tmp_path / "images.npy", mmap_mode="r"), LABELS)
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
@pytest.mark.parametrize("filed", [False, True])
def test_a_device_has_the_same_bits(tmp_path, rows, pixels, filed):
    """Whether its images are kept there, as those of a file are, or sent there."""
    images = IMAGES
    if filed:
        np.save(tmp_path / "images.npy", IMAGES)
        images = np.load(tmp_path / "images.npy", mmap_mode="r")
    scaling = Scaling(255, (0.4, 0.5), (0.2, 0.3))
    split = ArraySplit(images, LABELS if rows is None else LABELS[rows], rows=rows, pixels=pixels, scaling=scaling)
    here, there = split.tensors(), split.tensors("cuda")
    assert all(torch.equal(a, b.cpu()) for a, b in zip(here, there, strict=True))
    assert (split._kept is not None) == filed


@pytest.mark.parametrize("rows", [None, np.arange(40)[::-1].copy()])
@pytest.mark.parametrize("count", [1, 13, 99])
def test_the_first_samples_are_the_first(rows, count):
    labels = LABELS if rows is None else LABELS[rows]
    split = ArraySplit(IMAGES, labels, rows=rows, pixels=PixelMap(np.arange(9)[::-1].copy()), scaling=Scaling(255))
    few = split.first(count)
    assert len(few) == min(count, len(split))
    for found, all_of_them in zip(few.tensors(), split.tensors(), strict=True):
        torch.testing.assert_close(found, all_of_them[:count])
