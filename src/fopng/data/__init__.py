"""Datasets: found, fetched and verified by name, and handed out in batches."""

from fopng.data.catalog import DATASETS, Dataset
from fopng.data.errors import BadFileError, DataError, DatasetMissingError, FetchError
from fopng.data.fetching import fetch
from fopng.data.images import ImageSet, Samples, load
from fopng.data.pixels import PixelMap, Scaling
from fopng.data.splits import ArraySplit, Batches, DatasetSplit, Split

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
    "ImageSet",
    "PixelMap",
    "Samples",
    "Scaling",
    "Split",
    "fetch",
    "load",
]
