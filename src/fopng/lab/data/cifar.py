"""CIFAR-10 and CIFAR-100: the binary records, the pickled batches, and CIFAR-10 as PNG sprites."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from fopng.lab.data.contents import Arrays, ByteArray, Contents
from fopng.lab.data.errors import BadFileError, DataError
from fopng.lab.data.formats import Format
from fopng.lab.data.pickles import Plain, read_pickle

NAMES_BYTES = 64  # what a pickled batch holds beside its pixels, a sample: labels and file names
PICKLE_BYTES = 1 << 20


@final
@dataclass(frozen=True)
class CifarBinary(Format):
    """Records of `label_bytes` labels (the last is the class) and the image's planes."""

    train: tuple[str, ...]
    test: str
    label_bytes: int

    def limits(self, contents: Contents) -> dict[str, int]:
        """The exact size of each file."""
        record = self.label_bytes + contents.pixels
        return {
            **dict.fromkeys(self.train, contents.train // len(self.train) * record),
            self.test: contents.test * record,
        }

    def decode(self, files: Mapping[str, bytes], contents: Contents, origin: str) -> Arrays:
        """The four arrays."""
        parts = {name: self._records(data, contents, f"{origin}: {name}") for name, data in files.items()}
        return _join([parts[name] for name in self.train], parts[self.test], contents)

    def _records(self, data: bytes, contents: Contents, file: str) -> tuple[ByteArray, ByteArray]:
        record = self.label_bytes + contents.pixels
        if len(data) == 0 or len(data) % record:
            raise BadFileError(
                file, f"Expected records of {record:,} bytes, got {len(data):,} bytes in all. Get it again."
            )
        rows = np.frombuffer(data, np.uint8).reshape(-1, record)
        return rows[:, self.label_bytes :], _labels(rows[:, self.label_bytes - 1], contents, file)


@final
@dataclass(frozen=True)
class CifarPickle(Format):
    """Pickled dictionaries with rows of pixels under `data` and a list under `labels_key`."""

    train: tuple[str, ...]
    test: str
    labels_key: str

    def limits(self, contents: Contents) -> dict[str, int]:
        """The most bytes a batch may have: its pixels, its labels and its file names."""
        sample = contents.pixels + NAMES_BYTES
        return {
            **dict.fromkeys(self.train, contents.train // len(self.train) * sample + PICKLE_BYTES),
            self.test: contents.test * sample + PICKLE_BYTES,
        }

    def decode(self, files: Mapping[str, bytes], contents: Contents, origin: str) -> Arrays:
        """The four arrays."""
        parts = {name: self._batch(data, contents, f"{origin}: {name}") for name, data in files.items()}
        return _join([parts[name] for name in self.train], parts[self.test], contents)

    def _batch(self, data: bytes, contents: Contents, file: str) -> tuple[ByteArray, ByteArray]:
        batch = read_pickle(data, file)
        pixels, labels = _entry(batch, "data", file), _entry(batch, self.labels_key, file)
        if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1] != contents.pixels:
            raise BadFileError(file, f"Expected rows of {contents.pixels:,} bytes under 'data', got something else.")
        if not isinstance(labels, list) or len(labels) != len(pixels):
            raise BadFileError(file, f"Expected {len(pixels):,} labels under {self.labels_key!r}, got something else.")
        return pixels, _labels(labels, contents, file)


@final
@dataclass(frozen=True)
class CifarSprites(Format):
    """One PNG a batch, a row of it an image's pixels [height, width, channel]; labels as JSON lists."""

    train: tuple[str, ...]
    test: str
    train_labels: str
    test_labels: str

    def limits(self, contents: Contents) -> dict[str, int]:
        """PNG never grows the pixels by much; a label takes a digit and a comma."""
        return {
            **dict.fromkeys((*self.train, self.test), contents.train * contents.pixels + PICKLE_BYTES),
            **dict.fromkeys((self.train_labels, self.test_labels), contents.train * 8),
        }

    def decode(self, files: Mapping[str, bytes], contents: Contents, origin: str) -> Arrays:
        """The four arrays."""
        images = {name: _sprite(files[name], contents, f"{origin}: {name}") for name in (*self.train, self.test)}
        labels = {
            name: _labels(_json(files[name], f"{origin}: {name}"), contents, f"{origin}: {name}")
            for name in (self.train_labels, self.test_labels)
        }
        return {
            "train-images": np.concatenate([images[name] for name in self.train]),
            "train-labels": labels[self.train_labels],
            "test-images": images[self.test],
            "test-labels": labels[self.test_labels],
        }


def _join(
    train: Sequence[tuple[ByteArray, ByteArray]], test: tuple[ByteArray, ByteArray], contents: Contents
) -> Arrays:
    return {
        "train-images": np.concatenate([pixels for pixels, _ in train]).reshape(-1, *contents.image),
        "train-labels": np.concatenate([labels for _, labels in train]),
        "test-images": test[0].reshape(-1, *contents.image),
        "test-labels": np.ascontiguousarray(test[1]),
    }


def _entry(batch: Plain, key: str, file: str) -> Plain:
    """One entry of a pickled dictionary; Python 2 wrote its keys as bytes."""
    if not isinstance(batch, dict):
        raise BadFileError(file, f"Expected a dictionary with {key!r}, got {type(batch).__name__}.")
    for name in (key, key.encode()):
        if name in batch:
            return batch[name]
    raise BadFileError(file, f"Expected a dictionary with {key!r}, got the keys {sorted(map(str, batch))[:6]}.")


def _labels(values: object, contents: Contents, file: str) -> ByteArray:
    try:
        labels = np.asarray(values)
    except ValueError as error:  # lists inside the list, of several lengths
        raise BadFileError(file, "Expected a list of labels, got nested lists.") from error
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise BadFileError(
            file, f"Expected a list of whole numbers as labels, got {labels.dtype} of {labels.ndim} dimensions."
        )
    if labels.size and not 0 <= int(labels.min()) <= int(labels.max()) < contents.classes:
        raise BadFileError(
            file, f"Expected labels from 0 to {contents.classes - 1}, got {labels.min()} to {labels.max()}."
        )
    return labels.astype(np.uint8)


def _json(data: bytes, file: str) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadFileError(file, f"Expected labels as JSON, got: {error}.") from error


def _sprite(data: bytes, contents: Contents, file: str) -> ByteArray:
    """[n, channels, height, width] from a PNG whose rows are images."""
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError("Expected Pillow to read PNG files, got none. Install the extra: fopng[images].") from error
    channels, height, width = contents.image
    try:
        with Image.open(io.BytesIO(data), formats=["PNG"]) as image:
            if image.size[0] != height * width or image.size[1] > contents.train:
                raise BadFileError(file, f"Expected rows of {height * width} pixels, got an image of {image.size}.")
            pixels = np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError) as error:
        raise BadFileError(file, f"Expected a whole PNG file, got: {error}.") from error
    return np.ascontiguousarray(pixels.reshape(-1, height, width, channels).transpose(0, 3, 1, 2))
