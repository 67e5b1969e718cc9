"""How files lie on a disk: the folders and archives that other tools leave, and where to look for them."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import final

from fopng.lab.data.cache import cache_folder
from fopng.lab.data.contents import Arrays, Contents
from fopng.lab.data.files import Archive, Files, Folder
from fopng.lab.data.formats import Format

SYSTEM_FOLDER = Path("/usr/share/datasets")  # where Debian's package dataset-fashion-mnist puts its files


@dataclass(frozen=True)
class Found:
    """Files that look like a dataset; only `decode` tells whether they are."""

    files: Files
    format: Format

    def decode(self, contents: Contents) -> Arrays:
        """The arrays, checked against the known digests; BadFileError otherwise."""
        origin = str(self.files.place)
        arrays = self.format.decode(self.files.read(self.format.limits(contents)), contents, origin)
        contents.check(arrays, origin)
        return arrays


class Layout(ABC):
    """One way in which a dataset's files lie below a folder."""

    @abstractmethod
    def find(self, root: Path, contents: Contents) -> Iterator[Found]:
        """What is there, without reading it."""

    @abstractmethod
    def file_names(self, contents: Contents) -> tuple[str, ...]:
        """The files a user can put in place by hand."""


@final
@dataclass(frozen=True)
class FolderLayout(Layout):
    """Every file of a format in one of these folders, plain or gzipped."""

    format: Format
    folders: tuple[str, ...] = (".",)

    def find(self, root: Path, contents: Contents) -> Iterator[Found]:
        """The folders that hold every file."""
        for folder in self.folders:
            files = Folder(root / folder, self.file_names(contents))
            if files.complete():
                yield Found(files, self.format)

    def file_names(self, contents: Contents) -> tuple[str, ...]:
        """The format's own files."""
        return tuple(self.format.limits(contents))


@final
@dataclass(frozen=True)
class ArchiveLayout(Layout):
    """Every file of a format under one prefix of an archive."""

    format: Format
    archive: str
    prefix: str

    def find(self, root: Path, contents: Contents) -> Iterator[Found]:
        """The archive, if it is there."""
        if (root / self.archive).is_file():
            yield Found(Archive(root / self.archive, self.prefix), self.format)

    def file_names(self, contents: Contents) -> tuple[str, ...]:
        """The archive."""
        return (self.archive,)


def roots(name: str, data_dir: Path | None) -> list[Path]:
    """The folders to look in for a dataset, first to last: the user's own, the cache, where other tools put theirs."""
    own = data_dir or os.environ.get("FOPNG_DATA")
    bases = [Path(own).expanduser()] if own else []
    bases += [cache_folder(), Path("data"), Path.home() / "data", Path.home() / ".keras" / "datasets", SYSTEM_FOLDER]
    # The dataset's own folder first: IDX files that lie loose may be another dataset's of the same names.
    return [folder for base in bases for folder in (base / name, base)]
