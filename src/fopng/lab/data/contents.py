"""What a decoded dataset is: four uint8 arrays whose shapes and SHA-256 are known."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fopng.lab.data.errors import BadFileError

ByteArray: TypeAlias = NDArray[np.uint8]
Arrays: TypeAlias = dict[str, ByteArray]

PARTS = ("train-images", "train-labels", "test-images", "test-labels")


@dataclass(frozen=True)
class Contents:
    """The shapes and digests that the decoded arrays of one dataset must have.

    Attributes:
        image: shape of one image, (channels, height, width).
        train: number of training samples.
        test: number of test samples.
        classes: number of classes; labels run from 0 to classes - 1.
        digests: SHA-256 of the bytes of each array, by the names in PARTS.
    """

    image: tuple[int, int, int]
    train: int
    test: int
    classes: int
    digests: Mapping[str, str]

    @property
    def pixels(self) -> int:
        """Bytes of one image."""
        return int(np.prod(self.image))

    def shape(self, part: str) -> tuple[int, ...]:
        """Shape of one of the four arrays."""
        samples = self.train if part.startswith("train") else self.test
        return (samples, *self.image) if part.endswith("images") else (samples,)

    def check(self, arrays: Arrays, origin: str) -> None:
        """Raise BadFileError, naming `origin`, unless every array is the known one."""
        for part in PARTS:
            shape = self.shape(part)
            if arrays[part].shape != shape:
                raise BadFileError(
                    origin, f"Expected {part} of shape {shape}, got {arrays[part].shape}. Get the file again."
                )
            if digest(arrays[part]) != self.digests[part]:
                raise BadFileError(
                    origin, f"Expected the known {part}, got other contents (SHA-256). Get the file again."
                )


def digest(array: ByteArray) -> str:
    """SHA-256 of an array's bytes in C order."""
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()
