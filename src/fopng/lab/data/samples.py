"""A whole dataset in memory or memory-mapped, ready to be made into tasks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fopng.lab.data.catalog import DATASETS, KnownDataset, find_dataset
from fopng.lab.data.formats import image_folder, read_folder
from fopng.lab.data.holdout import parted
from fopng.lab.data.library import load_arrays, own_files
from fopng.lab.data.pixels import Scaling

ArrayLike: TypeAlias = NDArray[Any] | Tensor


@final
@dataclass(frozen=True, eq=False)
class Samples:
    """Raw inputs [n, ...] and the class of each, [n]."""

    inputs: NDArray[Any]
    labels: NDArray[np.int64]

    @classmethod
    def of(cls, inputs: ArrayLike, labels: ArrayLike) -> Samples:
        """From NumPy or torch arrays, checked; images [n, height, width] get a channel."""
        x, y = _array(inputs), _array(labels)
        if len(x) == 0 or y.shape != (len(x),):
            raise ValueError(f"Expected inputs [n, ...] and labels [n], got shapes {x.shape} and {y.shape}.")
        if y.dtype.kind not in "iu" or y.min() < 0:
            raise ValueError(f"Expected whole numbers from 0 on as labels, got {y.dtype} from {y.min()} on.")
        return cls(x[:, None] if x.ndim == 3 else x, y.astype(np.int64))


@final
@dataclass(frozen=True, eq=False)
class LoadedDataset:
    """Samples to train and to test on, and how raw values become numbers.

    Attributes:
        name: what it is called.
        train: the training samples.
        test: the test samples.
        class_names: a word for each class.
        scaling: how raw inputs become float32; None for those that are only converted.
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
        return self.train.inputs.shape[1:]

    @classmethod
    def from_arrays(
        cls,
        name: str,
        *,
        train: tuple[ArrayLike, ArrayLike],
        test: tuple[ArrayLike, ArrayLike],
        class_names: tuple[str, ...] = (),
    ) -> LoadedDataset:
        """From (inputs, labels) in NumPy or torch; bytes are scaled to [0, 1], other numbers taken as they are."""
        training, testing = Samples.of(*train), Samples.of(*test)
        if training.inputs.shape[1:] != testing.inputs.shape[1:]:
            shapes = f"{training.inputs.shape[1:]} and {testing.inputs.shape[1:]}"
            raise ValueError(f"Expected the same shape of inputs to train and to test on, got {shapes}.")
        classes = int(max(training.labels.max(), testing.labels.max())) + 1
        scaling = Scaling(255) if training.inputs.dtype == np.uint8 else None
        return cls(name, training, testing, class_names or tuple(map(str, range(classes))), scaling)


def load(name: str, data_dir: Path | None = None) -> LoadedDataset:
    """A dataset by its name, a folder of images by its path, or what `module:function` returns.

    Args:
        name: one of `DATASETS`, a folder with an image folder for each class, or `module:function`.
        data_dir: where to look before the places that are always looked in.
    """
    if name not in DATASETS and (folder := image_folder(name)) is not None:
        arrays, class_names = read_folder(folder)
        train, test = parted(arrays)
        return LoadedDataset.from_arrays(folder.name, train=train, test=test, class_names=class_names)
    dataset = find_dataset(name)
    if not isinstance(dataset, KnownDataset):
        return _called(name, dataset.function, tuple(own_files(dataset, data_dir).items()))
    known = load_arrays(dataset, data_dir)
    training, testing = (
        Samples(known[f"{part}-images"], known[f"{part}-labels"].astype(np.int64)) for part in ("train", "test")
    )
    scaling = Scaling(dataset.top, dataset.mean, dataset.deviation)
    return LoadedDataset(name, training, testing, dataset.class_names, scaling)


@lru_cache(maxsize=2)
def _called(name: str, function: Any, files: tuple[tuple[str, Path], ...]) -> LoadedDataset:
    """What a dataset's function returns: called once, and one array for all runs of a process."""
    arrays = function(dict(files)) if files else function()
    if not isinstance(arrays, tuple) or len(arrays) != 2:
        raise TypeError(f"Expected (inputs, labels), or two of these, from {name}, got {type(arrays).__name__}.")
    train, test = parted(arrays)
    return LoadedDataset.from_arrays(name, train=train, test=test)


def _array(values: ArrayLike) -> NDArray[Any]:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
