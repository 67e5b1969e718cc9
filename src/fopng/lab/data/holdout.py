"""Samples held back from training, the same ones in every process."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


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
