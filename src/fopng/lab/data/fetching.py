"""Fetching a dataset: each source in turn, until one gives the known arrays."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from fopng.lab.data.cache import downloads_folder, locked, open_arrays, remove_arrays, remove_downloads, save_arrays
from fopng.lab.data.catalog import Dataset
from fopng.lab.data.download import Report, silent
from fopng.lab.data.errors import BadFileError, DataError, DatasetMissingError, FetchError
from fopng.lab.data.library import by_hand, decode
from fopng.lab.data.sources import Mirror, Source


def fetch(
    dataset: Dataset,
    *,
    data_dir: Path | None = None,
    mirror: str | None = None,
    again: bool = False,
    report: Report = silent,
) -> str:
    """Make a dataset available, and say where it came from. A copy that is on this machine is never fetched again.

    Args:
        dataset: which one.
        data_dir: a folder to look in before the others.
        mirror: the address of a web folder with the dataset's files, tried before the known ones.
        again: forget the arrays in the cache first, for when they are damaged.
        report: told of each file's progress.
    """
    with locked(dataset.name, waiting=lambda: report("waiting for another process", 0, None)):
        if again:
            remove_arrays(dataset.name)
        if open_arrays(dataset.name, dataset.contents) is not None:
            return "already here"
        try:
            decode(dataset, data_dir)
        except DatasetMissingError:
            return _fetch(dataset, [*_own_mirrors(dataset, mirror), *dataset.sources], report)
        return "found on this machine"


def _fetch(dataset: Dataset, sources: Sequence[Source], report: Report) -> str:
    reasons: list[str] = []
    for source in sources:
        folder = _download_folder(dataset, source)
        try:
            arrays = source.obtain(folder, dataset.contents, report)
        except BadFileError as error:
            shutil.rmtree(folder, ignore_errors=True)
            reasons.append(f"  {source.label}: refused, {str(error).replace(str(folder), '').lstrip('/: ')}")
        except (DataError, OSError) as error:
            reasons.append(f"  {source.label}: {str(error).removeprefix(source.label).lstrip('/: ')}")
        else:
            save_arrays(dataset.name, arrays)
            remove_downloads(dataset.name)
            return source.label
    listed = "\n".join(dict.fromkeys(reasons))
    raise FetchError(f"Expected {dataset.name} from one of {len(sources)} sources, got:\n{listed}\n{by_hand(dataset)}")


def _download_folder(dataset: Dataset, source: Source) -> Path:
    """A folder for each source, so that a download is only ever resumed from where it began."""
    key = " ".join((source.label, *source.layout.file_names(dataset.contents)))
    return downloads_folder(dataset.name) / hashlib.sha256(key.encode()).hexdigest()[:16]


def _own_mirrors(dataset: Dataset, base: str | None) -> list[Source]:
    """The user's own mirror, asked for the files of each known one."""
    if base is None:
        return []
    known = [source for source in dataset.sources if isinstance(source, Mirror)]
    return [Mirror(base, files, layout) for files, layout in {source.files: source.layout for source in known}.items()]
