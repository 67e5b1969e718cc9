"""What is known of a dataset on this machine: where it is, how large, and whether it is right."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

from fopng.lab.data.cache import arrays_folder, open_arrays
from fopng.lab.data.catalog import Dataset, KnownDataset
from fopng.lab.data.errors import BadFileError, DatasetMissingError
from fopng.lab.data.formats import PARTS
from fopng.lab.data.library import locate, own_files, roots


@final
@dataclass(frozen=True)
class Status:
    """Where a dataset is.

    Attributes:
        state: `decoded` in the cache, `files` to be decoded at the first load, `other contents` for files that have its
            names but are another dataset's, `embedded` where a function makes it, or `missing`.
        place: the folder or archive, if there is one.
        size: bytes on disk there.
    """

    state: str
    place: Path | None = None
    size: int = 0


@final
@dataclass(frozen=True)
class Check:
    """One copy of a dataset that was verified; no problem means that every byte is right."""

    place: Path
    problem: str | None


def status(dataset: Dataset, data_dir: Path | None = None) -> Status:
    """Where a dataset would be loaded from; nothing is decoded."""
    if not isinstance(dataset, KnownDataset):
        return _own_status(dataset, data_dir)
    if open_arrays(dataset.name, dataset.contents) is not None:
        folder = arrays_folder(dataset.name)
        return Status("decoded", folder, sum((folder / f"{part}.npy").stat().st_size for part in PARTS))
    places = list(locate(dataset, roots(dataset.name, data_dir)))
    for found in places:
        if found.seems_right():
            return Status("files", found.place, found.size())
    if places:
        return Status("other contents", places[0].place, places[0].size())
    return Status("embedded" if dataset.function else "missing")


def verify(dataset: Dataset, data_dir: Path | None = None) -> list[Check]:
    """Every copy on this machine, read whole and held against the known digests."""
    if not isinstance(dataset, KnownDataset):
        return _own_checks(dataset, data_dir)
    folder = arrays_folder(dataset.name)
    checks = [Check(folder, _problem_of_arrays(dataset))] if folder.exists() else []
    return checks + [Check(found.place, found.problem()) for found in locate(dataset, roots(dataset.name, data_dir))]


def _own_status(dataset: Dataset, data_dir: Path | None) -> Status:
    try:
        paths = list(own_files(dataset, data_dir).values())
    except DatasetMissingError:
        return Status("missing")
    except BadFileError:
        return Status("other contents")
    if not paths:
        return Status("embedded")
    return Status("files", paths[0].parent, sum(path.stat().st_size for path in paths))


def _own_checks(dataset: Dataset, data_dir: Path | None) -> list[Check]:
    try:
        return [Check(path, None) for path in own_files(dataset, data_dir).values()]
    except DatasetMissingError:
        return []
    except BadFileError as error:
        return [Check(Path(error.file), str(error))]


def _problem_of_arrays(dataset: KnownDataset) -> str | None:
    arrays, folder = open_arrays(dataset.name, dataset.contents), arrays_folder(dataset.name)
    remedy = f"Run: fopng data fetch {dataset.name} --again"
    if arrays is None:
        return f"Expected four whole .npy files, got others. {remedy}"
    try:
        dataset.contents.check(arrays, str(folder))
    except BadFileError:
        return f"Expected the known arrays, got other contents (SHA-256). {remedy}"
    return None
