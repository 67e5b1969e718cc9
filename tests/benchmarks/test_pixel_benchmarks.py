import hashlib
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from scipy import ndimage

from fopng.lab.benchmarks import Permuted, Rotated, Scenario
from fopng.lab.benchmarks.base import random_order
from fopng.lab.benchmarks.pixels import rotation
from fopng.lab.data import LoadedDataset


def small(classes=3, samples=60, shape=(1, 6, 6)):
    random = np.random.default_rng(0)
    images = random.integers(1, 256, (samples, *shape), dtype=np.uint8)
    labels = np.arange(samples) % classes
    return LoadedDataset.from_arrays("small", train=(images, labels), test=(images[:30], labels[:30]))


class TestRotation:
    image = np.random.default_rng(1).integers(1, 256, (28, 28), dtype=np.uint8)

    def turned(self, degrees, image=None):
        image = self.image if image is None else image
        return rotation(degrees, *image.shape)(image[None, None])[0, 0]

    @pytest.mark.parametrize("degrees", [0, 10, 20, 30, 40, 90, 180, 270, -15, 37.5, 400])
    def test_it_is_pillows(self, degrees):
        pillow = np.asarray(Image.fromarray(self.image).rotate(degrees, Image.Resampling.NEAREST))
        np.testing.assert_array_equal(self.turned(degrees), pillow)

    @pytest.mark.parametrize("degrees", [10, 20, 30, 40, 75])
    def test_it_is_scipys(self, degrees):
        scipys = ndimage.rotate(self.image, degrees, reshape=False, order=0, mode="grid-constant", cval=0)
        np.testing.assert_array_equal(self.turned(degrees), scipys)

    def test_counter_clockwise(self):
        image = np.zeros((3, 3), np.uint8)
        image[0, 2] = 7  # top right goes to top left
        assert self.turned(90, image)[0, 0] == 7

    @given(st.floats(-720, 720), st.integers(1, 9), st.integers(1, 9))
    def test_every_pixel_is_an_old_one_or_black(self, degrees, height, width):
        image = np.arange(1, height * width + 1, dtype=np.uint8).reshape(height, width)
        assert set(self.turned(degrees, image).ravel()) <= {0, *image.ravel()}

    def test_the_centre_stays(self):
        image = np.arange(25, dtype=np.uint8).reshape(5, 5)
        assert all(self.turned(degrees, image)[2, 2] == 12 for degrees in range(0, 360, 7))


class TestPermutations:
    def test_different_between_tasks_and_seeds(self):
        orders = {tuple(random_order(784, seed, task)) for seed in range(5) for task in range(50)}
        assert len(orders) == 250
        assert all(sorted(order) == list(range(784)) for order in orders)

    def test_every_task_is_permuted_and_train_and_test_alike(self):
        data = small()
        plain = data.scaling(torch.from_numpy(data.train.inputs))
        for task in Permuted("small").stream(data, seed=3, validation=False):
            x, _ = task.train.tensors()
            assert not torch.equal(x, plain)
            assert torch.equal(x[:30], task.test.tensors()[0])

    def test_a_longer_stream_begins_with_the_shorter(self):
        short, long = (Permuted("small", tasks=n).stream(small(), seed=1, validation=False) for n in (3, 6))
        for a, b in zip(short, long.tasks[:3], strict=True):
            assert torch.equal(a.train.tensors()[0], b.train.tensors()[0])

    def test_the_same_in_every_process_and_for_ever(self):
        code = "from fopng.lab.benchmarks.base import random_order; print(random_order(784, 5, 2).tolist())"
        printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        mine = str(random_order(784, 5, 2).tolist())
        assert printed.strip() == mine
        assert hashlib.sha256(mine.encode()).hexdigest()[:16] == "585b15298e966a12"

    def test_colours_move_together(self):
        images = small(shape=(3, 4, 4))
        x, _ = Permuted("small").stream(images, seed=0, validation=False)[0].train.tensors()
        before = torch.from_numpy(images.train.inputs).float().div(255)
        pairs = {tuple(pixel) for pixel in before[0].flatten(1).T.tolist()}
        after = {tuple(pixel) for pixel in x[0].flatten(1).T.tolist()}
        np.testing.assert_allclose(sorted(pairs), sorted(after), rtol=1e-6)


@pytest.mark.parametrize("make", [Permuted, Rotated])
class TestScenarios:
    @pytest.mark.parametrize(
        ("scenario", "heads", "third"),
        [
            (Scenario.DOMAIN, (3,), [0, 1, 2]),
            (Scenario.TASK, (3,) * 5, [0, 1, 2]),
            (Scenario.CLASS, (15,), [6, 7, 8]),
        ],
    )
    def test_heads_and_targets(self, make, scenario, heads, third):
        stream = make("small", scenario).stream(small(), seed=0, validation=False)
        assert stream.heads == heads
        assert all(sorted(set(split.targets.tolist())) == third for split in stream[2].splits)

    def test_validation_is_the_end_of_each_class_of_train(self, make):
        images = small()
        with_it, without = (make("small").stream(images, seed=0, validation=v) for v in (True, False))
        for held, full in zip(with_it, without, strict=True):
            assert full.validation is None
            x, y = full.train.tensors()
            last = torch.zeros(len(y), dtype=torch.bool)
            for label in range(3):
                last[(y == label).nonzero().flatten()[-2:]] = True
            assert torch.equal(held.validation.tensors()[0], x[last])
            assert torch.equal(held.train.tensors()[0], x[~last])
            assert torch.equal(held.test.tensors()[0], full.test.tensors()[0])


def test_angles_name_the_tasks():
    stream = Rotated("small", angles=(0, 22.5)).stream(small(), seed=0, validation=False)
    assert [task.name for task in stream] == ["0 degrees", "22.5 degrees"]


def test_too_few_samples_to_hold_back():
    with pytest.raises(ValueError, match=r"10 training samples or more of class 0 of small .* got 6"):
        Rotated("small").stream(small(samples=30, classes=5), seed=0, validation=True)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Permuted("small", tasks=0), "Expected tasks of at least 1, got 0"),
        (lambda: Rotated("small", angles=()), "one angle or more"),
        (lambda: Rotated("small", angles=(float("nan"),)), "one angle or more"),
        (lambda: Permuted("small").stream(small(), seed=-1, validation=False), "seed of 0 or more, got -1"),
    ],
)
def test_settings_are_checked(make, problem):
    with pytest.raises(ValueError, match=problem):
        make()


def test_only_images_can_be_turned():
    flat = np.zeros((20, 9)), np.arange(20) % 2
    data = LoadedDataset.from_arrays("x", train=flat, test=flat)
    with pytest.raises(ValueError, match=r"Expected images \[channels, height, width\]"):
        Rotated("x").stream(data, seed=0, validation=False)


@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_inputs_that_are_no_images_are_permuted_number_by_number(dtype):
    inputs = np.arange(40 * 6, dtype=dtype).reshape(40, 6)
    data = LoadedDataset.from_arrays("x", train=(inputs, np.arange(40) % 2), test=(inputs[:9], np.arange(9) % 2))
    for number, task in enumerate(Permuted("x", tasks=3).stream(data, seed=4, validation=False)):
        x, _ = task.train.tensors()
        assert torch.equal(x, torch.from_numpy(inputs[:, random_order(6, 4, number)]).to(x.dtype))
        assert x.dtype == (torch.int64 if dtype is np.int64 else torch.float32)
