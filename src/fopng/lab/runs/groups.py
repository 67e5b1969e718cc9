"""Which runs stand side by side, and where a wave of them is saved while it goes on."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal, TypeVar, final, get_args

import torch

from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.store import Store
from fopng.lab.storage import atomic
from fopng.lab.storage.checkpoint import Checkpoint

EngineName = Literal["auto", "replicas", "single"]

STACKED_ON_CPU = ("mlp",)
"""Models whose runs are faster side by side on a CPU too, measured with `bench/replicas.py`."""

LARGEST_WAVE = {"cpu": 10, "cuda": 256}
"""Beyond these a larger wave is no faster, and loses more when it is interrupted."""

_Item = TypeVar("_Item")


def check_engine(engine: str) -> None:
    """Raise for an engine that there is not."""
    if engine not in get_args(EngineName):
        raise ValueError(f"Expected an engine out of {', '.join(get_args(EngineName))}, got {engine!r}.")


def stand_side_by_side(config: RunConfig, runs: int, engine: EngineName, device: torch.device) -> bool:
    """Whether so many runs like this one are done side by side; `auto` does what is faster."""
    if engine != "auto":
        return engine == "replicas"
    faster = device.type == "cuda" or (device.type == "cpu" and config.model in STACKED_ON_CPU)
    return runs > 1 and faster


def alike(configs: Iterable[RunConfig]) -> list[list[RunConfig]]:
    """Runs in groups that differ in the seed and in numeric settings alone."""
    groups: dict[str, list[RunConfig]] = {}
    for config in configs:
        settings = {name: "a number" if isinstance(v, float) else v for name, v in config.settings.items()}
        kind = dataclasses.replace(config, seed=0, settings=settings)
        groups.setdefault(kind.canonical(), []).append(config)
    return list(groups.values())


def cut(items: Sequence[_Item], most: int) -> list[list[_Item]]:
    """Cut a list into pieces of much the same size, none above `most`.

    >>> cut("abcdefg", 3)
    [['a', 'b', 'c'], ['d', 'e'], ['f', 'g']]
    """
    pieces = -(-len(items) // most)
    size, longer = divmod(len(items), max(1, pieces))
    starts = [number * size + min(number, longer) for number in range(pieces + 1)]
    return [list(items[first:last]) for first, last in pairwise(starts)]


@final
@dataclass(frozen=True)
class WaveFolder:
    """Where the runs of a wave are saved together while they go on: `wave-<hash of their keys>`, beside their own folders."""

    path: Path
    keys: tuple[str, ...]

    @classmethod
    def of(cls, store: Store, configs: Sequence[RunConfig]) -> WaveFolder:
        """The folder of these runs, in this order."""
        keys = tuple(config.key for config in configs)
        name = hashlib.sha256(" ".join(keys).encode()).hexdigest()[:16]
        return cls(_beside(store, configs[0]) / f"wave-{name}", keys)

    @classmethod
    def begun(cls, store: Store, config: RunConfig) -> list[WaveFolder]:
        """The waves of this benchmark and method that were begun and not ended, as far as they can be read."""
        paths = sorted(_beside(store, config).glob("wave-*"))
        return [cls(path, keys) for path in paths if (keys := _read_keys(path / "wave.json")) is not None]

    @property
    def checkpoint(self) -> Checkpoint:
        """What the wave goes on from."""
        return Checkpoint(self.path)

    def begin(self) -> None:
        """Write down which runs they are, so that the same wave can be formed again. For the process that claimed them."""
        with atomic.as_write_error(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        atomic.remove_partials(self.path)
        atomic.write_text(self.path / "wave.json", atomic.readable_json({"runs": list(self.keys)}) + "\n")

    def clear(self) -> None:
        """Remove it: its runs have their results, or begin anew."""
        shutil.rmtree(self.path, ignore_errors=True)

    def has_any(self, configs: Iterable[RunConfig]) -> bool:
        """Whether one of these runs is in it."""
        return any(config.key in self.keys for config in configs)

    def is_over(self) -> bool:
        """Whether every run has its result."""
        return all((self.path.parent / key / "result.json").exists() for key in self.keys)


def taken_up(store: Store, group: Sequence[RunConfig]) -> Iterator[list[RunConfig]]:
    """The waves of these runs that an earlier process left, as they were formed then."""
    by_key = {config.key: config for config in group}
    for wave in WaveFolder.begun(store, group[0]):
        if set(wave.keys) <= set(by_key) and not wave.is_over():
            yield [by_key.pop(key) for key in wave.keys]


def forget_waves(store: Store, claimed: Sequence[RunConfig]) -> None:
    """Remove the waves of runs that this process holds: nobody else can be at work on them."""
    for begun in WaveFolder.begun(store, claimed[0]):
        if begun.has_any(claimed):
            begun.clear()


def clear_ended(store: Store, configs: Iterable[RunConfig]) -> None:
    """Remove what is left of waves whose runs have their results, made one by one perhaps."""
    for group in alike(configs):
        for wave in WaveFolder.begun(store, group[0]):
            if wave.is_over():
                wave.clear()


def _beside(store: Store, config: RunConfig) -> Path:
    return store.folder(config).path.parent


def _read_keys(path: Path) -> tuple[str, ...] | None:
    try:
        keys = json.loads(path.read_bytes())["runs"]
        return tuple(map(str, keys)) if isinstance(keys, list) else None
    except (OSError, ValueError, TypeError, KeyError):
        return None
