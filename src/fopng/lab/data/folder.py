"""A folder of images, a folder inside it for each class: read with Pillow (extra `images`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fopng.lab.data.contents import Arrays, ByteArray
from fopng.lab.data.embedded import TEST_SHARE
from fopng.lab.data.errors import BadFileError, DataError
from fopng.lab.data.holdout import last_of_each_class

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".pgm", ".ppm", ".tif", ".tiff", ".webp"})


_LENT: dict[str, Path] = {}


def lend_folder(reference: str, folder: Path) -> None:
    """Have a path mean a folder that lies elsewhere on this machine: for a process that was sent a copy of it."""
    _LENT[reference] = folder


def image_folder(reference: str) -> Path | None:
    """The folder that a user's path names, if there is one."""
    folder = _LENT.get(reference, Path(reference).expanduser())
    return folder if folder.is_dir() else None


def read_folder(folder: Path) -> tuple[Arrays, tuple[str, ...]]:
    """The four arrays and the names of the classes, sorted.

    `folder` holds `train/` and `test/` with a folder a class in each, or a folder a class alone: then the last fifth of
    each class, by file name, is for testing.
    """
    if (folder / "train").is_dir() and (folder / "test").is_dir():
        class_names = _class_names(folder / "train")
        parts = {part: _read_classes(folder / part, class_names) for part in ("train", "test")}
        arrays = {
            f"{part}-{kind}": array
            for part, pair in parts.items()
            for kind, array in zip(("images", "labels"), pair, strict=True)
        }
        _same_shape(folder, arrays)
        return arrays, class_names
    class_names = _class_names(folder)
    images, labels = _read_classes(folder, class_names)
    test = last_of_each_class(labels, TEST_SHARE)
    if len(np.unique(labels[test])) < len(class_names):
        raise DataError(
            f"Expected {TEST_SHARE} images or more of each class in {folder}, got fewer. Add images, or a test/ folder."
        )
    return {
        "train-images": images[~test],
        "train-labels": labels[~test],
        "test-images": images[test],
        "test-labels": labels[test],
    }, class_names


def _class_names(folder: Path) -> tuple[str, ...]:
    names = tuple(sorted(child.name for child in folder.iterdir() if child.is_dir() and not child.name.startswith(".")))
    if not names:
        raise DataError(f"Expected a folder of images for each class in {folder}, got no folders.")
    if len(names) > 256:
        raise DataError(f"Expected at most 256 classes in {folder}, got {len(names)}.")
    return names


def _read_classes(folder: Path, class_names: tuple[str, ...]) -> tuple[ByteArray, ByteArray]:
    images: list[ByteArray] = []
    labels: list[int] = []
    for label, name in enumerate(class_names):
        files = sorted(path for path in (folder / name).glob("*") if path.suffix.lower() in SUFFIXES)
        if not files:
            raise DataError(f"Expected images of the class {name!r} in {folder / name}, got none.")
        for path in files:
            images.append(_read_image(path))
            labels.append(label)
            if images[-1].shape != images[0].shape:
                raise BadFileError(
                    str(path),
                    f"Expected an image of shape {images[0].shape}, as the first has, got {images[-1].shape}.",
                )
    return np.stack(images), np.array(labels, dtype=np.uint8)


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
    except (OSError, SyntaxError, ValueError) as error:
        raise BadFileError(str(path), f"Expected an image, got: {error}.") from error
    return pixels[None] if grey else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _same_shape(folder: Path, arrays: Arrays) -> None:
    train, test = arrays["train-images"].shape[1:], arrays["test-images"].shape[1:]
    if train != test:
        raise DataError(f"Expected images of one shape in {folder}, got {train} to train and {test} to test on.")
