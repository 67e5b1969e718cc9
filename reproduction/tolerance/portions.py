"""The part of each dataset that the streams take, from the official files or from a folder that holds it packed."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import final

import numpy as np
from numpy.typing import NDArray

from fopng.lab.data.catalog import DATASETS, KnownDataset
from fopng.lab.data.pixels import Scaling
from fopng.lab.data.samples import LoadedDataset, Samples, load
from fopng.lab.storage import atomic
from reproduction.tolerance.texts import SOURCES, Corpus, corpora

TEXTS = "texts"
PARTS = ("train", "test")


@final
@dataclass(frozen=True)
class Portion:
    """The first classes of a dataset, and of each of them the first samples.

    Attributes:
        classes: how many classes.
        train: samples of each to learn from.
        test: samples of each to be tested on.
        shrunk: a pixel is the mean of a square of so many by so many.
    """

    classes: int
    train: int
    test: int
    shrunk: int = 1


PORTIONS: Mapping[str, Portion] = {
    "mnist": Portion(classes=10, train=2400, test=200),
    "cifar10": Portion(classes=10, train=2000, test=200, shrunk=2),
    "cifar100": Portion(classes=50, train=400, test=50, shrunk=2),
}
"""Packed, and with the texts, they are small enough to be carried to another machine."""


@lru_cache(maxsize=2)
def portion(name: str, folder: Path | None) -> LoadedDataset:
    """The part of a dataset that is used, out of `NAME.npz` in a folder, or of the official files."""
    known = DATASETS[name]
    assert isinstance(known, KnownDataset)
    arrays = _packed(name, folder) or _portion_of(load(name, folder), PORTIONS[name])
    train, test = (Samples(arrays[f"{part}_inputs"], arrays[f"{part}_labels"].astype(np.int64)) for part in PARTS)
    scaling = Scaling(known.top, known.mean, known.deviation)
    return LoadedDataset(name, train, test, known.class_names[: PORTIONS[name].classes], scaling)


@lru_cache(maxsize=1)
def texts(folder: Path | None) -> tuple[Corpus, ...]:
    """The three corpora, out of `texts.npz` in a folder, or of what this machine holds."""
    arrays = _packed(TEXTS, folder)
    if arrays is None:
        return corpora()
    return tuple(Corpus(name, arrays[f"{name}_train"].tobytes(), arrays[f"{name}_test"].tobytes()) for name in SOURCES)


def own_data() -> Path | None:
    """The user's folder of datasets: FOPNG_DATA."""
    found = os.environ.get("FOPNG_DATA")
    return Path(found).expanduser() if found else None


def pack(folder: Path, data_dir: Path | None) -> list[Path]:
    """Write everything that the streams take into a folder, for a machine that holds neither datasets nor texts."""
    found = {TEXTS: {f"{c.name}_{part}": _bytes(text) for c in texts(data_dir) for part, text in _parts(c)}}
    for name in PORTIONS:
        data = portion(name, data_dir)
        found[name] = {f"{part}_{kind}": array for part, kind, array in _arrays(data)}
    folder.mkdir(parents=True, exist_ok=True)
    for name, arrays in found.items():
        stream = io.BytesIO()
        np.savez_compressed(stream, **arrays)  # type: ignore[arg-type, unused-ignore]  # arrays by name
        atomic.write_bytes(_place(name, folder), stream.getvalue())
    return [_place(name, folder) for name in found]


def first_of_each_class(samples: Samples, count: int) -> Samples:
    """The first samples of each class, in the order in which they lie."""
    rows = _first_rows(samples.labels, count)
    return Samples(samples.inputs[rows], samples.labels[rows])


def shrunk(images: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """Images `[n, channels, height, width]` with a pixel for each square of so many by so many, the mean of theirs."""
    n, channels, height, width = images.shape
    squares = images.reshape(n, channels, height // side, side, width // side, side)
    found: NDArray[np.uint8] = squares.mean((3, 5)).round().astype(np.uint8)
    return found


def digest(data: LoadedDataset) -> str:
    """Twelve hexadecimal digits that name the samples."""
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for _, _, array in _arrays(data))).hexdigest()[
        :12
    ]


def _packed(name: str, folder: Path | None) -> dict[str, NDArray[np.uint8]] | None:
    if folder is None or not _place(name, folder).is_file():
        return None
    with np.load(_place(name, folder)) as arrays:
        return dict(arrays)


def _place(name: str, folder: Path) -> Path:
    return folder / f"{name}.npz"


def _portion_of(data: LoadedDataset, wanted: Portion) -> dict[str, NDArray[np.uint8]]:
    found = {}
    for part, samples, count in (("train", data.train, wanted.train), ("test", data.test, wanted.test)):
        rows = _first_rows(np.where(samples.labels < wanted.classes, samples.labels, -1), count)
        found[f"{part}_inputs"] = shrunk(samples.inputs[rows], wanted.shrunk)
        found[f"{part}_labels"] = samples.labels[rows].astype(np.uint8)
    return found


def _first_rows(labels: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The rows of the first of each class; those with a label below 0 are left out."""
    every = [np.flatnonzero(labels == label)[:count] for label in range(int(labels.max()) + 1)]
    return np.sort(np.concatenate(every))


def _arrays(data: LoadedDataset) -> list[tuple[str, str, NDArray[np.uint8]]]:
    return [
        (part, kind, array.astype(np.uint8))
        for part, samples in (("train", data.train), ("test", data.test))
        for kind, array in (("inputs", samples.inputs), ("labels", samples.labels))
    ]


def _parts(corpus: Corpus) -> tuple[tuple[str, bytes], tuple[str, bytes]]:
    return ("train", corpus.train), ("test", corpus.test)


def _bytes(text: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(text, dtype=np.uint8)
