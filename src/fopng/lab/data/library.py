"""From a dataset's name to its arrays: looked up, decoded once, memory-mapped from then on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fopng.lab.data.cache import cache_folder, locked, open_arrays, save_arrays, warn_unwritable
from fopng.lab.data.catalog import Dataset
from fopng.lab.data.contents import Arrays
from fopng.lab.data.errors import BadFileError, DatasetMissingError
from fopng.lab.data.layouts import Found, roots


def load_arrays(dataset: Dataset, data_dir: Path | None = None) -> Arrays:
    """The four uint8 arrays of a dataset, from the cache or decoded from the first good place.

    Arrays in the cache have the same known digests wherever their files came from, so they are taken first.
    """
    arrays = open_arrays(dataset.name, dataset.contents)
    if arrays is not None:
        return arrays
    with locked(dataset.name):
        return open_arrays(dataset.name, dataset.contents) or decode(dataset, data_dir)


def decode(dataset: Dataset, data_dir: Path | None) -> Arrays:
    """Decode the first good copy on this machine and keep the result in the cache; the caller holds the lock."""
    if dataset.embedded is not None:
        arrays = dataset.embedded()
        dataset.contents.check(arrays, dataset.title)
    else:
        arrays = _first_good(dataset, data_dir)
    try:
        save_arrays(dataset.name, arrays)
    except OSError as error:
        warn_unwritable(error)
        return arrays
    return open_arrays(dataset.name, dataset.contents) or arrays


def locate(dataset: Dataset, data_dir: Path | None) -> Iterator[Found]:
    """Every place whose files look like the dataset, first to last, without reading them."""
    for root in roots(dataset.name, data_dir):
        for layout in dataset.layouts:
            yield from layout.find(root, dataset.contents)


def by_hand(dataset: Dataset) -> str:
    """Which files to get, and where to put them."""
    ways = dict.fromkeys(", ".join(layout.file_names(dataset.contents)) for layout in dataset.layouts)
    folder = cache_folder() / dataset.name
    lines = [f"Put the files of one line (plain or with .gz) into {folder}, or into a folder named by FOPNG_DATA:"]
    return "\n".join(lines + [f"  {way}" for way in ways])


def _first_good(dataset: Dataset, data_dir: Path | None) -> Arrays:
    refused: list[str] = []
    for found in locate(dataset, data_dir):
        try:
            return found.decode(dataset.contents)
        except (BadFileError, OSError) as error:
            refused.append(f"  {error}")
    looked = "".join(f"\n{line}" for line in dict.fromkeys(refused))
    problem = f"these files are not it:{looked}" if refused else "it is in none of the places that were looked in."
    raise DatasetMissingError(
        f"Expected the dataset {dataset.name} on this machine, but {problem}\nRun: fopng data fetch {dataset.name}"
    )
