"""Samples held back from training, the same ones in every process."""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from fopng.lab.data.formats import Pair

TEST_SHARE = 5  # one in five samples of each class, where a dataset has no samples to test on of its own


def last_of_each_class(labels: NDArray[np.integer], share: int) -> NDArray[np.bool_]:
    """A mask [n] of the last 1/share of the samples of each class, rounded down.

    >>> last_of_each_class(np.array([0, 1, 0, 1, 1]), 2)
    array([False, False,  True, False,  True])
    """
    last = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        last[rows[len(rows) - len(rows) // share :]] = True
    return last


def parted(arrays: Pair | tuple[Pair, Pair]) -> tuple[Pair, Pair]:
    """Samples to train and to test on: as they are, or the last fifth of each class of `inputs, labels` to test on."""
    if _is_parted(arrays):
        return arrays
    inputs, labels = (np.asarray(array) for array in arrays)
    test = last_of_each_class(labels, TEST_SHARE)
    if len(np.unique(labels[test])) < len(np.unique(labels)):
        few = f"{np.unique(labels, return_counts=True)[1].min()}"
        raise ValueError(
            f"Expected {TEST_SHARE} samples or more of each class, got {few}. Give samples to test on too."
        )
    return (inputs[~test], labels[~test]), (inputs[test], labels[test])


def _is_parted(arrays: Any) -> TypeGuard[tuple[Pair, Pair]]:
    return isinstance(arrays[0], tuple | list)
