"""Finding a dataset's files on this machine, in the folders and archives that other tools leave, and checking them."""

from __future__ import annotations

import gzip
import hashlib
import os
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from fopng.lab.data.cache import cache_folder, locked, open_arrays, save_arrays, warn_unwritable
from fopng.lab.data.catalog import Dataset, KnownDataset, Layout
from fopng.lab.data.errors import BadFileError, DatasetMissingError
from fopng.lab.data.formats import PARTS, Arrays, Read
from fopng.lab.data.holdout import parted

LARGEST = 1 << 29  # no file here comes near half a gigabyte
SYSTEM_FOLDER = Path("/usr/share/datasets")  # where Debian's package dataset-fashion-mnist puts its files


@final
@dataclass(frozen=True)
class Found:
    """Files that have a dataset's names; only `decode` tells whether they are it.

    Attributes:
        dataset: whose names they have.
        layout: how they lie.
        place: the folder, or the archive.
    """

    dataset: KnownDataset
    layout: Layout
    place: Path

    def decode(self) -> Arrays:
        """The four arrays, checked against the known digests; BadFileError otherwise."""
        with self._reading() as read:
            arrays = self.layout.format.decode(read, self.dataset.contents)
        self.dataset.contents.check(arrays, str(self.place))
        return arrays

    def problem(self) -> str | None:
        """What is wrong with these files, if anything is."""
        try:
            self.decode()
        except (BadFileError, OSError) as error:
            return str(error)
        return None

    def seems_right(self) -> bool:
        """Whether the test labels, which are read quickly, are the known ones; an archive is not opened for that."""
        if self.layout.archive:
            return True
        try:
            with self._reading() as read:
                labels = self.layout.format.test_labels(read, self.dataset.contents)
            self.dataset.contents.check({"test-labels": labels}, str(self.place))
        except (BadFileError, OSError):
            return False
        return True

    def size(self) -> int:
        """Bytes on disk."""
        paths = (
            [self.place] if self.layout.archive else [find_file(self.place, name) for name in self.layout.format.files]
        )
        return sum(path.stat().st_size for path in paths if path is not None)

    @contextmanager
    def _reading(self) -> Iterator[Read]:
        """A way to read the files; whatever damage it meets is a BadFileError that names the place."""
        try:
            yield self._members() if self.layout.archive else self._file
        except BadFileError as error:
            raise error if str(self.place) in str(error) else BadFileError(str(self.place), str(error)) from error
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise BadFileError(str(self.place), f"Expected whole files, got: {error}. Get them again.") from error

    def _file(self, name: str, limit: int) -> bytes:
        path = find_file(self.place, name)
        if path is None:
            raise BadFileError(name, "Expected a file, got none. Get it again.")
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            return _bounded(stream.read(limit + 1), limit, name)

    def _members(self) -> Read:
        """Files of an archive, read in one pass; nothing is ever unpacked to disk."""
        wanted = {f"{self.layout.folders[0]}/{name}": name for name in self.layout.format.files}
        found: dict[str, bytes] = {}
        with tarfile.open(self.place) as archive:
            for member in archive:
                name = wanted.get(member.name.removeprefix("./"))
                stream = archive.extractfile(member) if name and member.isfile() else None
                if name and stream is not None:
                    found[name] = stream.read(LARGEST)
        missing = ", ".join(path for path, name in wanted.items() if name not in found)
        if missing:
            raise BadFileError(str(self.place), f"Expected {missing} inside, got none. Get the archive again.")
        return lambda name, limit: _bounded(found[name], limit, name)


def roots(name: str, data_dir: Path | None = None) -> list[Path]:
    """The folders to look in for a dataset, first to last: the user's own, the cache, where other tools put theirs."""
    own = data_dir or os.environ.get("FOPNG_DATA")
    bases = [Path(own).expanduser()] if own else []
    bases += [cache_folder(), Path("data"), Path.home() / "data", Path.home() / ".keras" / "datasets", SYSTEM_FOLDER]
    # The dataset's own folder first: IDX files that lie loose may be another dataset's of the same names.
    return [folder for base in bases for folder in (base / name, base)]


def find_file(folder: Path, name: str) -> Path | None:
    """The plain file before the gzipped one, or None."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def locate(dataset: KnownDataset, folders: Iterable[Path]) -> Iterator[Found]:
    """Every place whose files have the dataset's names, first to last, without reading them."""
    for root in folders:
        for layout in dataset.layouts:
            if layout.archive:
                places = [root / layout.archive] if (root / layout.archive).is_file() else []
            else:
                below = [root / folder for folder in layout.folders]
                places = [place for place in below if all(find_file(place, name) for name in layout.format.files)]
            yield from (Found(dataset, layout, place) for place in places)


def load_arrays(dataset: KnownDataset, data_dir: Path | None = None) -> Arrays:
    """The four uint8 arrays of a known dataset, from the cache or decoded from the first good place.

    Arrays in the cache have the same known digests wherever their files came from, so they are taken first.
    """
    arrays = open_arrays(dataset.name, dataset.contents)
    if arrays is not None:
        return arrays
    with locked(dataset.name):
        return open_arrays(dataset.name, dataset.contents) or decode(dataset, roots(dataset.name, data_dir))


def decode(dataset: KnownDataset, folders: Iterable[Path]) -> Arrays:
    """Decode the first good copy in these folders and keep the result in the cache; the caller holds the lock."""
    arrays = _made(dataset) if dataset.function else _first_good(dataset, folders)
    try:
        save_arrays(dataset.name, arrays)
    except OSError as error:
        warn_unwritable(error)
        return arrays
    return open_arrays(dataset.name, dataset.contents) or arrays


def own_files(dataset: Dataset, data_dir: Path | None = None) -> dict[str, Path]:
    """The files of somebody's own dataset: the first of each name, refused unless its hash is the declared one."""
    found = {}
    for name, known in dataset.files.items():
        path = next((root / name for root in roots(dataset.name, data_dir) if (root / name).is_file()), None)
        if path is None:
            raise DatasetMissingError(
                f"Expected {name} on this machine for {dataset.name}, got none.\n{by_hand(dataset)}"
            )
        if not _has_hash(path, known):
            raise BadFileError(str(path), f"Expected a file of the hash {known}, got other contents. Get it again.")
        found[name] = path
    return found


def _has_hash(path: Path, known: str) -> bool:
    kind, _, value = known.rpartition(":")
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, kind or "sha256").hexdigest() == value.lower()


def by_hand(dataset: Dataset) -> str:
    """Which files to get, and where to put them."""
    layouts = dataset.layouts if isinstance(dataset, KnownDataset) else ()
    ways = dict.fromkeys(", ".join(layout.files) for layout in layouts) or [", ".join(dataset.files)]
    folder = cache_folder() / dataset.name
    lines = [f"Put the files of one line (plain or with .gz) into {folder}, or into a folder named by FOPNG_DATA:"]
    return "\n".join(lines + [f"  {way}" for way in ways])


def _made(dataset: KnownDataset) -> Arrays:
    """What the dataset's function returns, as bytes."""
    assert dataset.function is not None
    made = (array.astype(np.uint8) for pair in parted(dataset.function()) for array in pair)
    arrays = dict(zip(PARTS, made, strict=True))
    dataset.contents.check(arrays, dataset.title)
    return arrays


def _first_good(dataset: KnownDataset, folders: Iterable[Path]) -> Arrays:
    refused: list[str] = []
    for found in locate(dataset, folders):
        try:
            return found.decode()
        except (BadFileError, OSError) as error:
            refused.append(f"\n  {error}")
    problem = "it is in none of the places that were looked in."
    if refused:
        problem = f"these files are not it:{''.join(dict.fromkeys(refused))}"
    raise DatasetMissingError(
        f"Expected the dataset {dataset.name} on this machine, but {problem}\nRun: fopng data fetch {dataset.name}"
    )


def _bounded(data: bytes, limit: int, name: str) -> bytes:
    if len(data) > limit:
        raise BadFileError(name, f"Expected at most {limit:,} bytes, got more. It is another file: get the right one.")
    return data
