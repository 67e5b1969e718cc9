"""What is known of a dataset on this machine: where it is, how large, and whether it is right."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fopng.lab.data.cache import arrays_folder, open_arrays
from fopng.lab.data.catalog import Dataset
from fopng.lab.data.contents import PARTS
from fopng.lab.data.errors import BadFileError
from fopng.lab.data.library import locate


@dataclass(frozen=True)
class Status:
    """Where a dataset is.

    Attributes:
        state: `decoded` in the cache, `files` to be decoded at the first load, `embedded` in a package, or `missing`.
        place: the folder or archive, if there is one.
        size: bytes on disk there.
    """

    state: str
    place: Path | None = None
    size: int = 0


@dataclass(frozen=True)
class Check:
    """One copy of a dataset that was verified; no problem means that every byte is right."""

    place: Path
    problem: str | None


def status(dataset: Dataset, data_dir: Path | None = None) -> Status:
    """Where a dataset would be loaded from; nothing is decoded."""
    if open_arrays(dataset.name, dataset.contents) is not None:
        folder = arrays_folder(dataset.name)
        return Status("decoded", folder, sum((folder / f"{part}.npy").stat().st_size for part in PARTS))
    for found in locate(dataset, data_dir):
        return Status("files", found.files.place, found.files.size())
    return Status("missing" if dataset.embedded is None else "embedded")


def verify(dataset: Dataset, data_dir: Path | None = None) -> list[Check]:
    """Every copy on this machine, read whole and held against the known digests."""
    checks = []
    folder = arrays_folder(dataset.name)
    if folder.exists():
        checks.append(Check(folder, _problem_of_arrays(dataset)))
    for found in locate(dataset, data_dir):
        try:
            found.decode(dataset.contents)
        except (BadFileError, OSError) as error:
            checks.append(Check(found.files.place, str(error)))
        else:
            checks.append(Check(found.files.place, None))
    return checks


def _problem_of_arrays(dataset: Dataset) -> str | None:
    arrays = open_arrays(dataset.name, dataset.contents)
    remedy = f"Run: fopng data fetch {dataset.name} --again"
    if arrays is None:
        return f"Expected four whole .npy files, got others. {remedy}"
    try:
        dataset.contents.check(arrays, str(arrays_folder(dataset.name)))
    except BadFileError:
        return f"Expected the known arrays, got other contents (SHA-256). {remedy}"
    return None
