"""Which runs are trained as one group, and the folder where a group's shared checkpoint lies."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeVar, final

import torch

from fopng.lab.choices import EngineName
from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.store import Store
from fopng.lab.storage import atomic
from fopng.lab.storage.checkpoint import Checkpoint
from fopng.lab.storage.parsing import read_json

GROUPED_ON_CPU = ("mlp",)
"""Models whose runs are faster as a group on a CPU too, measured with `bench/replicas.py`."""

LARGEST_GROUP = {"cpu": 10, "cuda": 256}
"""A larger group is no faster, and loses more when it is interrupted."""

LEFT_SECONDS = 60.0
"""A half-written file that is older was left by a killed process."""

_Item = TypeVar("_Item")


def is_grouped(config: RunConfig, runs: int, engine: EngineName, device: torch.device) -> bool:
    """Whether this many runs like this one are trained as a group; `auto` and `ray` choose what is faster."""
    if engine in ("replicas", "single"):
        return engine == "replicas"
    faster = device.type == "cuda" or (device.type == "cpu" and config.model in GROUPED_ON_CPU)
    return runs > 1 and faster


def alike(configs: Iterable[RunConfig]) -> list[list[RunConfig]]:
    """Runs in lists whose members differ only in the seed and in numeric settings."""
    groups: dict[str, list[RunConfig]] = {}
    for config in configs:
        settings = {name: "a number" if isinstance(v, float) else v for name, v in config.settings.items()}
        kind = dataclasses.replace(config, seed=0, settings=settings)
        groups.setdefault(kind.canonical(), []).append(config)
    return list(groups.values())


def cut(items: Sequence[_Item], most: int) -> list[list[_Item]]:
    """Cut a list into pieces of nearly equal size, none above `most`.

    >>> cut("abcdefg", 3)
    [['a', 'b', 'c'], ['d', 'e'], ['f', 'g']]
    """
    pieces = -(-len(items) // most)
    size, longer = divmod(len(items), max(1, pieces))
    starts = [number * size + min(number, longer) for number in range(pieces + 1)]
    return [list(items[first:last]) for first, last in pairwise(starts)]


def halves(items: Sequence[_Item]) -> list[list[_Item]]:
    """Cut a list in two."""
    return cut(items, -(-len(items) // 2))


@final
@dataclass(frozen=True)
class GroupFolder:
    """`group-<hash of the keys>`, beside the folders of its runs: the shared checkpoint of an unfinished group."""

    path: Path
    keys: tuple[str, ...]

    @classmethod
    def of(cls, store: Store, configs: Sequence[RunConfig]) -> GroupFolder:
        """The folder of these runs, in this order."""
        keys = tuple(config.key for config in configs)
        name = hashlib.sha256(" ".join(keys).encode()).hexdigest()[:16]
        return cls(_beside(store, configs[0]) / f"group-{name}", keys)

    @classmethod
    def begun(cls, store: Store, config: RunConfig) -> list[GroupFolder]:
        """The unfinished groups of this benchmark and method whose description can be read."""
        paths = sorted(_beside(store, config).glob("group-*"))
        return [cls(path, keys) for path in paths if (keys := _read_keys(path)) is not None]

    @property
    def checkpoint(self) -> Checkpoint:
        """Where the group continues from."""
        return Checkpoint(self.path)

    def begin(self) -> None:
        """Write which runs belong to it. Only for the process that holds the runs."""
        description = atomic.readable_json({"runs": list(self.keys)}) + "\n"
        for last in (False, True):
            with atomic.as_write_error(self.path):
                self.path.mkdir(parents=True, exist_ok=True)
            try:
                atomic.remove_partials(self.path)
                atomic.write_text(self.path / "group.json", description)
                break
            except atomic.WriteError:
                # While it was empty another process may have taken the folder for a leftover.
                if last or self.path.is_dir():
                    raise

    def clear(self) -> None:
        """Remove it, the description last: what a kill leaves of it is seen to be over, or empty."""
        self.checkpoint.clear()
        shutil.rmtree(self.path, ignore_errors=True)

    def has_any(self, configs: Iterable[RunConfig]) -> bool:
        """Whether one of these runs belongs to it."""
        return any(config.key in self.keys for config in configs)

    def is_over(self) -> bool:
        """Whether every run has its result."""
        return all((self.path.parent / key / "result.json").exists() for key in self.keys)


def unfinished_groups(store: Store, group: Sequence[RunConfig]) -> Iterator[list[RunConfig]]:
    """The groups of these runs that an earlier process left unfinished, in the order they had then."""
    by_key = {config.key: config for config in group}
    for folder in GroupFolder.begun(store, group[0]):
        if set(folder.keys) <= set(by_key) and not folder.is_over():
            yield [by_key.pop(key) for key in folder.keys]


def forget_groups(store: Store, held: Sequence[RunConfig]) -> None:
    """Remove the group folders of runs that this process holds."""
    for folder in GroupFolder.begun(store, held[0]):
        if folder.has_any(held):
            folder.clear()


def remove_ended(store: Store, configs: Iterable[RunConfig]) -> None:
    """Remove the group folders whose runs all have results, and those that hold nothing."""
    for parent in {_beside(store, config) for config in configs}:
        for path in parent.glob("group-*"):
            keys = _read_keys(path)
            if keys is None:
                _remove_empty(path)
            elif GroupFolder(path, keys).is_over():
                GroupFolder(path, keys).clear()


def _remove_empty(path: Path) -> None:
    """A process that was killed while it made or removed a group folder leaves one without a description."""
    for partial in path.glob(f".*{atomic.SUFFIX}"):
        with suppress(OSError):
            if time.time() - partial.stat().st_mtime > LEFT_SECONDS:
                partial.unlink()
    with suppress(OSError):  # not empty
        path.rmdir()


def _beside(store: Store, config: RunConfig) -> Path:
    return store.folder(config).path.parent


def _read_keys(folder: Path) -> tuple[str, ...] | None:
    try:
        keys = read_json(folder / "group.json")["runs"]
        return tuple(map(str, keys)) if isinstance(keys, list) else None
    except (OSError, ValueError, TypeError, KeyError):
        return None
