"""The files of unfinished runs, on their way between the store and a worker's folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import final

from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.groups import WaveFolder
from fopng.lab.runs.store import Store
from fopng.lab.storage import atomic

RESULT = "result.json"

_WHOLE = ("wave.json", RESULT, "checkpoint.[01]")
"""Files that are replaced. A description of a checkpoint comes after its tensors when they are written."""

_GROWING = ("log.jsonl", "tensorboard/*")
"""Files that are only ever added to: what was added travels."""


@final
@dataclass(frozen=True)
class Parcel:
    """Files by their path below the store: some whole, of others what was added to them."""

    whole: Mapping[str, bytes] = field(default_factory=dict)
    added: Mapping[str, bytes] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.whole or self.added)

    def after(self, earlier: Parcel) -> Parcel:
        """Both in one: the files as they are after the two were unpacked in turn."""
        added = {name: earlier.added.get(name, b"") + tail for name, tail in self.added.items()}
        return Parcel({**earlier.whole, **self.whole}, {**earlier.added, **added})

    def unpack(self, root: Path) -> None:
        """Write the files below a folder."""
        for name in sorted(self.whole):
            path = _inside(root, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic.write_bytes(path, self.whole[name])
        for name, tail in self.added.items():
            path = _inside(root, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic.as_write_error(path), path.open("ab") as file:
                file.write(tail)

    def take_results(self) -> tuple[dict[str, bytes], Parcel]:
        """The results that are in it, by the key of their run, and the rest."""
        results = {name: text for name, text in self.whole.items() if PurePosixPath(name).name == RESULT}
        rest = {name: content for name, content in self.whole.items() if name not in results}
        return {PurePosixPath(name).parent.name: text for name, text in results.items()}, Parcel(rest, self.added)


def pack(store: Store, wave: Sequence[RunConfig]) -> Parcel:
    """What a wave goes on from: checkpoints, and the results that runs of it have already. For the process that holds it."""
    folders = [store.folder(config).path for config in wave]
    folders += [begun.path for begun in WaveFolder.begun(store, wave[0]) if begun.has_any(wave)]
    return Parcel({_name(store.root, path): path.read_bytes() for path in _files(folders, _WHOLE)})


@final
class Outgoing:
    """What changes below a worker's folder, each change once. What lies there at first has changed for nobody.

    Args:
        root: the folder.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._sent: dict[str, int] = {}
        self._seen: dict[str, tuple[int, int]] = {}
        self.changes()

    def changes(self) -> Parcel:
        """What was written since the last time. To be asked between two writes, not during one."""
        folders = [path for path in self._root.glob("*/*/*") if path.is_dir()]
        whole = {_name(self._root, path): path.read_bytes() for path in _files(folders, _WHOLE) if self._is_new(path)}
        grown = [path for path in _files(folders, _GROWING) if self._is_new(path)]
        return Parcel(whole, {_name(self._root, path): self._tail(path) for path in grown})

    def _is_new(self, path: Path) -> bool:
        status, name = path.stat(), _name(self._root, path)
        # Every write of a whole file is a new file under its name.
        mark = (status.st_ino, status.st_mtime_ns + status.st_size)
        changed = self._seen.get(name) != mark
        self._seen[name] = mark
        return changed

    def _tail(self, path: Path) -> bytes:
        name = _name(self._root, path)
        with path.open("rb") as file:
            file.seek(self._sent.get(name, 0))
            tail = file.read()
        self._sent[name] = self._sent.get(name, 0) + len(tail)
        return tail


def _files(folders: Sequence[Path], patterns: Sequence[str]) -> Iterator[Path]:
    for folder in folders:
        for pattern in patterns:
            yield from sorted(path for path in folder.glob(pattern) if path.is_file())


def _name(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()


def _inside(root: Path, name: str) -> Path:
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts:
        raise ValueError(f"Expected a path below the folder of the runs, got {name!r}. Mend the worker.")
    return root / pure
