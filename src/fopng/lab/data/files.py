"""Named files in a folder or an archive, read into memory; archives are never unpacked to disk."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Literal, final

from fopng.lab.data.errors import BadFileError


class Files(ABC):
    """A place that holds files by name."""

    @property
    @abstractmethod
    def place(self) -> Path:
        """The folder or the archive."""

    @abstractmethod
    def size(self) -> int:
        """Bytes on disk."""

    @abstractmethod
    def read(self, limits: Mapping[str, int]) -> dict[str, bytes]:
        """The bytes of every name in `limits`; a file longer than its limit is refused unread."""


@final
@dataclass(frozen=True)
class Folder(Files):
    """Files in a folder, each plain or gzipped (with `.gz` behind its name)."""

    folder: Path
    names: tuple[str, ...]

    @property
    def place(self) -> Path:
        """The folder."""
        return self.folder

    def size(self) -> int:
        """Bytes of the files that would be read."""
        return sum(path.stat().st_size for name in self.names if (path := self.find(name)))

    def find(self, name: str) -> Path | None:
        """The plain file before the gzipped one, or None."""
        candidates = (self.folder / name, self.folder / f"{name}.gz")
        return next((path for path in candidates if path.is_file()), None)

    def complete(self) -> bool:
        """Whether every file is there."""
        return all(self.find(name) for name in self.names)

    def read(self, limits: Mapping[str, int]) -> dict[str, bytes]:
        """The bytes of the named files, unzipped."""
        return {name: self._read(name, limit) for name, limit in limits.items()}

    def _read(self, name: str, limit: int) -> bytes:
        path = self.find(name)
        if path is None:
            raise BadFileError(str(self.folder / name), "Expected a file, got none. Put it there or fetch the dataset.")
        try:
            with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
                return bounded(stream, limit, str(path))
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise BadFileError(str(path), f"Expected a whole gzip file, got: {error}. Get it again.") from error


@final
@dataclass(frozen=True)
class Archive(Files):
    """Files under one prefix of a tar archive, compressed or not."""

    file: Path
    prefix: str

    @property
    def place(self) -> Path:
        """The archive."""
        return self.file

    def size(self) -> int:
        """Bytes of the archive."""
        return self.file.stat().st_size

    def read(self, limits: Mapping[str, int]) -> dict[str, bytes]:
        """The named members in one pass. An archive with a path that climbs out is refused whole."""
        try:
            with tarfile.open(self.file, self._mode()) as archive:
                members = self._members(archive, limits)
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise BadFileError(str(self.file), f"Expected a whole tar archive, got: {error}. Get it again.") from error
        for name in limits:
            if name not in members:
                raise BadFileError(str(self.file), f"Expected {self.prefix}{name} inside, got none. Get it again.")
        return members

    def _mode(self) -> Literal["r:gz", "r:"]:
        """By the first bytes: browsers unzip what they download and keep its name."""
        with self.file.open("rb") as stream:
            return "r:gz" if stream.read(2) == b"\x1f\x8b" else "r:"

    def _members(self, archive: tarfile.TarFile, limits: Mapping[str, int]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for member in archive:
            self._refuse_climbing(member)
            name = member.name.removeprefix("./").removeprefix(self.prefix)
            if name in limits and member.isfile() and name not in found:
                stream = archive.extractfile(member)
                assert stream is not None  # isfile() members always have contents
                found[name] = bounded(stream, limits[name], f"{self.file}: {member.name}")
        return found

    def _refuse_climbing(self, member: tarfile.TarInfo) -> None:
        path = PurePosixPath(member.name.replace("\\", "/"))
        if path.is_absolute() or ".." in path.parts:
            raise BadFileError(
                str(self.file), f"Expected paths inside the archive, got {member.name!r}. Do not use it."
            )


def bounded(stream: IO[bytes] | gzip.GzipFile, limit: int, file: str) -> bytes:
    """All bytes of a stream, refused when there are more than `limit`."""
    data = stream.read(limit + 1)
    if len(data) > limit:
        raise BadFileError(file, f"Expected at most {limit:,} bytes, got more. It is another file: get the right one.")
    return data
