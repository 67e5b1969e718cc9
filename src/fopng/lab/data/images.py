"""A whole dataset in memory or memory-mapped, ready to be made into tasks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fopng.lab.data.catalog import DATASETS, find_dataset
from fopng.lab.data.folder import image_folder, read_folder
from fopng.lab.data.library import load_arrays
from fopng.lab.data.pixels import Scaling

ArrayLike: TypeAlias = NDArray[Any] | Tensor


@final
@dataclass(frozen=True, eq=False)
class Samples:
    """Raw inputs [n, ...] and the class of each, [n]."""

    images: NDArray[Any]
    labels: NDArray[np.int64]

    @classmethod
    def of(cls, images: ArrayLike, labels: ArrayLike) -> Samples:
        """From NumPy or torch arrays, checked; images [n, height, width] get a channel."""
        inputs, classes = _array(images), _array(labels)
        if len(inputs) == 0 or classes.shape != (len(inputs),):
            raise ValueError(f"Expected inputs [n, ...] and labels [n], got shapes {inputs.shape} and {classes.shape}.")
        if classes.dtype.kind not in "iu" or classes.min() < 0:
            raise ValueError(
                f"Expected whole numbers from 0 on as labels, got {classes.dtype} from {classes.min()} on."
            )
        if inputs.ndim == 3:
            inputs = inputs[:, None]
        return cls(inputs, classes.astype(np.int64))


@final
@dataclass(frozen=True, eq=False)
class ImageSet:
    """A dataset: samples to train and to test on, and how raw values become numbers.

    Attributes:
        name: what it is called.
        train: the training samples.
        test: the test samples.
        class_names: a word for each class.
        scaling: how raw inputs become float32; only converted when None.
    """

    name: str
    train: Samples
    test: Samples
    class_names: tuple[str, ...]
    scaling: Scaling | None

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return self.train.images.shape[1:]

    @classmethod
    def from_arrays(
        cls, name: str, *, train: tuple[ArrayLike, ArrayLike], test: tuple[ArrayLike, ArrayLike]
    ) -> ImageSet:
        """From (inputs, labels) in NumPy or torch; bytes are scaled to [0, 1], other numbers taken as they are."""
        training, testing = Samples.of(*train), Samples.of(*test)
        if training.images.shape[1:] != testing.images.shape[1:]:
            shapes = f"{training.images.shape[1:]} and {testing.images.shape[1:]}"
            raise ValueError(f"Expected the same shape of inputs to train and to test on, got {shapes}.")
        classes = int(max(training.labels.max(), testing.labels.max())) + 1
        scaling = Scaling(255) if training.images.dtype == np.uint8 else None
        return cls(name, training, testing, tuple(map(str, range(classes))), scaling)


def load(name: str, data_dir: Path | None = None) -> ImageSet:
    """A dataset by its name, or a folder of images by its path.

    Args:
        name: one of `DATASETS`, or a folder with an image folder for each class.
        data_dir: where to look before the places that are always looked in.
    """
    if name not in DATASETS and (folder := image_folder(name)) is not None:
        return _from_folder(folder)
    dataset = find_dataset(name)
    arrays = load_arrays(dataset, data_dir)
    train, test = (
        Samples(arrays[f"{part}-images"], arrays[f"{part}-labels"].astype(np.int64)) for part in ("train", "test")
    )
    return ImageSet(name, train, test, dataset.class_names, Scaling(dataset.top, dataset.mean, dataset.deviation))


def _from_folder(folder: Path) -> ImageSet:
    arrays, class_names = read_folder(folder)
    train, test = (Samples.of(arrays[f"{part}-images"], arrays[f"{part}-labels"]) for part in ("train", "test"))
    return ImageSet(folder.name, train, test, class_names, Scaling(255))


def _array(values: ArrayLike) -> NDArray[Any]:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
