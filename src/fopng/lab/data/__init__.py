"""Datasets: found, fetched and verified by name, and handed out in batches."""

from fopng.lab.data.catalog import DATASETS, Dataset, KnownDataset, Source, register
from fopng.lab.data.errors import BadFileError, DataError, DatasetMissingError, FetchError
from fopng.lab.data.pixels import PixelMap, Scaling
from fopng.lab.data.samples import LoadedDataset, Samples, load
from fopng.lab.data.splits import ArraySplit, Batches, DatasetSplit, Split

__all__ = [
    "DATASETS",
    "ArraySplit",
    "BadFileError",
    "Batches",
    "DataError",
    "Dataset",
    "DatasetMissingError",
    "DatasetSplit",
    "FetchError",
    "KnownDataset",
    "LoadedDataset",
    "PixelMap",
    "Samples",
    "Scaling",
    "Source",
    "Split",
    "load",
    "register",
]
