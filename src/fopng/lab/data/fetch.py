"""Fetching a dataset's files with pooch: each source in turn, until one gives what is known."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias, final

import pooch
import requests

from fopng.lab.data.cache import cache_folder, locked, open_arrays, remove_arrays
from fopng.lab.data.catalog import Dataset, KnownDataset, Source
from fopng.lab.data.errors import BadFileError, DataError, DatasetMissingError, FetchError
from fopng.lab.data.library import LARGEST, by_hand, decode, own_files, roots

Report: TypeAlias = Callable[[str, int, int | None], None]
"""Called with a file's name, the bytes that are here, and the bytes in all where the server tells."""

ATTEMPTS = 3
SECONDS = 30.0
CHUNK = 1 << 16


def fetch(
    dataset: Dataset,
    *,
    data_dir: Path | None = None,
    mirror: str | None = None,
    again: bool = False,
    report: Report = lambda file, done, total: None,
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
        try:
            return _found(dataset, data_dir)
        except DatasetMissingError:
            pooch.get_logger().setLevel("WARNING")
            return _fetch(dataset, [*_at(dataset, mirror), *dataset.sources], report)


def _found(dataset: Dataset, data_dir: Path | None) -> str:
    if not isinstance(dataset, KnownDataset):
        own_files(dataset, data_dir)
        return "already here"
    if open_arrays(dataset.name, dataset.contents) is not None:
        return "already here"
    decode(dataset, roots(dataset.name, data_dir))
    return "found on this machine"


def _at(dataset: Dataset, mirror: str | None) -> list[Source]:
    """The user's own mirror, asked for the files of each known source."""
    ways = dict.fromkeys(source.files for source in dataset.sources) or {tuple(dataset.files): None}
    return [Source(mirror, files) for files in ways] if mirror else []


def _fetch(dataset: Dataset, sources: list[Source], report: Report) -> str:
    reasons: list[str] = []
    for source in sources:
        try:
            _bring(dataset, source, report)
        except (DataError, OSError, ValueError) as error:
            reasons.append(f"  {source.url}: {error}")
        else:
            return source.url
    listed = "\n".join(dict.fromkeys(reasons))
    raise FetchError(f"Expected {dataset.name} from one of {len(sources)} sources, got:\n{listed}\n{by_hand(dataset)}")


def _bring(dataset: Dataset, source: Source, report: Report) -> None:
    """Download what is missing; files that prove wrong are removed, so that the next call asks for them anew."""
    folder = cache_folder() / dataset.name
    if isinstance(dataset, KnownDataset):
        # A folder for each source, so that a wrong file of one is never taken for another's.
        folder = (
            cache_folder() / "downloads" / f"{dataset.name}-{hashlib.sha256(repr(source).encode()).hexdigest()[:16]}"
        )
    for file in source.files:
        _download(f"{source.url.rstrip('/')}/{file}", dataset.files.get(file), folder, file, report)
    if isinstance(dataset, KnownDataset):
        try:
            decode(dataset, [folder])
        except DatasetMissingError as error:
            reason = str(error).partition("not it:")[2].partition("\nRun:")[0].replace(str(folder), "").strip(": \n")
            raise BadFileError("refused", reason or "got other files.") from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _download(url: str, known_hash: str | None, folder: Path, file: str, report: Report) -> None:
    """One file, whole or not at all: pooch gives it its name at the end. A connection that is cut is tried again."""
    for attempt in range(ATTEMPTS):
        downloader = pooch.HTTPDownloader(
            progressbar=_Progress(file, report, known_hash is None), chunk_size=CHUNK, timeout=SECONDS
        )
        try:
            pooch.retrieve(url, known_hash, fname=file, path=folder, downloader=downloader)
            return
        except requests.HTTPError as error:
            raise DataError(f"{file}: {str(error).partition(' for url')[0]}") from error
        except requests.RequestException as error:
            if attempt == ATTEMPTS - 1 or not isinstance(error, requests.exceptions.ChunkedEncodingError):
                raise DataError(f"{file}: {_reason(error)}") from error


def _reason(error: requests.RequestException) -> str:
    if isinstance(error, requests.Timeout) or "timed out" in str(error):
        return f"no answer within {SECONDS:g} seconds"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return f"the connection ended early, {ATTEMPTS} times"
    return "no connection"


@final
class _Progress:
    """What pooch tells of a download, as a report; a server that never ends is stopped."""

    def __init__(self, file: str, report: Report, bounded: bool) -> None:
        self._file, self._report, self._bounded = file, report, bounded
        self.total, self._done = 0, 0

    def update(self, size: int) -> None:
        """So many bytes more."""
        self._done = min(self._done + size, self.total) if self.total else self._done + size
        if self._bounded and max(self._done, self.total) > LARGEST:
            raise DataError(f"{self._file}: Expected at most {LARGEST:,} bytes, got more.")
        self._report(self._file, self._done, self.total or None)

    def reset(self) -> None:
        """Pooch begins anew only to report the end."""
        self._done = 0

    def close(self) -> None:
        """Nothing to close."""
