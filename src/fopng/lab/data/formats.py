"""The formats in which datasets lie on a disk, read as four arrays: IDX, CIFAR's two, and folders of images."""

from __future__ import annotations

import hashlib
import pickletools
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from fopng.lab.data.errors import BadFileError, DataError

ByteArray: TypeAlias = NDArray[np.uint8]
Arrays: TypeAlias = dict[str, ByteArray]
Pair: TypeAlias = tuple[NDArray[Any], NDArray[Any]]
"""Inputs [n, ...] and labels [n]."""

Read: TypeAlias = Callable[[str, int], bytes]
"""The bytes of a file by its name; BadFileError when there are more than so many."""

PARTS = ("train-images", "train-labels", "test-images", "test-labels")
PICKLE_BYTES = 1 << 20
NAME_BYTES = 64  # labels and file names in a pickled batch, a sample
SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".pgm", ".ppm", ".tif", ".tiff", ".webp"})


@dataclass(frozen=True)
class Contents:
    """The shapes and digests that the arrays of one dataset must have, whatever files they come from.

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

    def shape(self, part: str) -> tuple[int, ...]:
        """Shape of one of the four arrays."""
        samples = self.train if part.startswith("train") else self.test
        return (samples, *self.image) if part.endswith("images") else (samples,)

    def check(self, arrays: Arrays, origin: str) -> None:
        """Raise BadFileError, naming `origin`, unless these are the known arrays (or the known part of them)."""
        for part, array in arrays.items():
            if array.shape != self.shape(part) or digest(array) != self.digests[part]:
                raise BadFileError(
                    origin, f"Expected the known {part}, got other contents (SHA-256). Get the files again."
                )


def digest(array: ByteArray) -> str:
    """SHA-256 of an array's bytes in C order."""
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


class Format(ABC):
    """One way to write the four arrays down."""

    @property
    @abstractmethod
    def files(self) -> tuple[str, ...]:
        """The names of the files."""

    @abstractmethod
    def decode(self, read: Read, contents: Contents) -> Arrays:
        """The four arrays; BadFileError when the files are not of this format."""

    @abstractmethod
    def test_labels(self, read: Read, contents: Contents) -> ByteArray:
        """One array alone, to tell quickly whose files these are."""


@final
@dataclass(frozen=True)
class Idx(Format):
    """MNIST's four files: a big-endian header, then bytes. Some tools write a dot where the original has a hyphen."""

    mark: str = "-"

    @property
    def files(self) -> tuple[str, ...]:
        """In the order of PARTS."""
        kinds = (f"images{self.mark}idx3-ubyte", f"labels{self.mark}idx1-ubyte")
        return tuple(f"{part}-{kind}" for part in ("train", "t10k") for kind in kinds)

    def decode(self, read: Read, contents: Contents) -> Arrays:
        """Images as [n, 1, height, width]."""
        return {part: self._read(read, part, contents.shape(part)) for part in PARTS}

    def test_labels(self, read: Read, contents: Contents) -> ByteArray:
        """A file of its own, of a few kilobytes."""
        return self._read(read, "test-labels", contents.shape("test-labels"))

    def _read(self, read: Read, part: str, shape: tuple[int, ...]) -> ByteArray:
        file, sizes = self.files[PARTS.index(part)], (shape[0], *shape[2:])
        header = struct.pack(f">4B{len(sizes)}I", 0, 0, 8, len(sizes), *sizes)
        data = read(file, len(header) + prod(sizes))
        if not data.startswith(header) or len(data) != len(header) + prod(sizes):
            raise BadFileError(file, f"Expected an IDX file of bytes of shape {sizes}, got another. Get it again.")
        return np.frombuffer(data, np.uint8, offset=len(header)).reshape(shape)


class Batches(Format):
    """Several files to train on and one to test on, each with pixels and labels."""

    train: tuple[str, ...]
    test: str

    @property
    def files(self) -> tuple[str, ...]:
        """Those to train on, then the one to test on."""
        return (*self.train, self.test)

    def decode(self, read: Read, contents: Contents) -> Arrays:
        """Each file in turn."""
        batches = [self.batch(read, file, contents.train // len(self.train), contents) for file in self.train]
        images, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
        test = self.batch(read, self.test, contents.test, contents)
        return dict(zip(PARTS, (images, labels, *test), strict=True))

    def test_labels(self, read: Read, contents: Contents) -> ByteArray:
        """Out of the file to test on."""
        return self.batch(read, self.test, contents.test, contents)[1]

    @abstractmethod
    def batch(self, read: Read, file: str, samples: int, contents: Contents) -> tuple[ByteArray, ByteArray]:
        """Images and labels of one file."""


@final
@dataclass(frozen=True)
class CifarBinary(Batches):
    """Records of `label_bytes` labels (the last is the class) and the image's planes."""

    train: tuple[str, ...]
    test: str
    label_bytes: int

    def batch(self, read: Read, file: str, samples: int, contents: Contents) -> tuple[ByteArray, ByteArray]:
        """Images and labels of one file."""
        record = self.label_bytes + prod(contents.image)
        data = read(file, samples * record)
        if len(data) != samples * record:
            raise BadFileError(file, f"Expected {samples * record:,} bytes, got {len(data):,}. Get it again.")
        rows = np.frombuffer(data, np.uint8).reshape(samples, record)
        images = rows[:, self.label_bytes :].reshape(samples, *contents.image)
        return images, rows[:, self.label_bytes - 1].copy()


@final
@dataclass(frozen=True)
class CifarPython(Batches):
    """Pickled batches, never unpickled: of each file's opcodes, which are listed and not run, two values are taken."""

    train: tuple[str, ...]
    test: str
    labels_key: bytes

    def batch(self, read: Read, file: str, samples: int, contents: Contents) -> tuple[ByteArray, ByteArray]:
        """The longest text is the pixels; the numbers behind the key, up to the next text, are the labels."""
        pixels, labels, wanted = b"", list[int](), False
        try:
            data = read(file, samples * (prod(contents.image) + NAME_BYTES) + PICKLE_BYTES)
            for opcode, argument, _ in pickletools.genops(data):
                if isinstance(argument, str | bytes):
                    text = argument if isinstance(argument, bytes) else argument.encode("latin1", "replace")
                    wanted, pixels = text == self.labels_key, max(pixels, text, key=len)
                elif wanted and opcode.name.startswith("BININT"):
                    labels.append(int(argument or 0))
            planes = np.frombuffer(pixels, np.uint8).reshape(samples, *contents.image)
            return planes, np.array(labels, dtype=np.uint8)
        except (ValueError, OverflowError) as error:
            raise BadFileError(file, f"Expected a batch of {samples:,} pickled images, got: {error}.") from error


def image_folder(reference: str) -> Path | None:
    """The folder that a user's path names, if there is one."""
    folder = Path(reference).expanduser()
    return folder if folder.is_dir() else None


def read_folder(folder: Path) -> tuple[tuple[Pair, Pair] | Pair, tuple[str, ...]]:
    """Images and labels of a folder with a folder for each class, and the names of the classes, sorted.

    Below `train/` and `test/`, where these are, to train and to test on.
    """
    parted = (folder / "train").is_dir() and (folder / "test").is_dir()
    top = folder / "train" if parted else folder
    names = tuple(sorted(child.name for child in top.iterdir() if child.is_dir() and not child.name.startswith(".")))
    if not names:
        raise DataError(f"Expected a folder of images for each class in {top}, got no folders.")
    if parted:
        return (_read_classes(top, names), _read_classes(folder / "test", names)), names
    return _read_classes(folder, names), names


def _read_classes(folder: Path, names: Sequence[str]) -> Pair:
    images, labels = [], []
    for label, name in enumerate(names):
        files = sorted(path for path in (folder / name).glob("*") if path.suffix.lower() in SUFFIXES)
        if not files:
            raise DataError(f"Expected images of the class {name!r} in {folder / name}, got none.")
        for path in files:
            images.append(_read_image(path))
            labels.append(label)
            if images[-1].shape != images[0].shape:
                shapes = f"{images[0].shape}, as the first has, got {images[-1].shape}"
                raise BadFileError(str(path), f"Expected an image of shape {shapes}.")
    return np.stack(images), np.array(labels)


def _read_image(path: Path) -> ByteArray:
    """uint8 [channels, height, width]: one channel for grey images, three for all others."""
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError("Expected Pillow to read images, got none. Install the extra: fopng[images].") from error
    try:
        with Image.open(path) as image:
            grey = image.mode in ("1", "L", "I;16")
            pixels = np.asarray(image.convert("L" if grey else "RGB"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise BadFileError(str(path), f"Expected an image, got: {error}.") from error
    return pixels[None] if grey else np.ascontiguousarray(pixels.transpose(2, 0, 1))
