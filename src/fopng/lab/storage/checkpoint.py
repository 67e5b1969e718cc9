"""Saving the state of a run so that a crash at any moment loses at most the work since the last save.

A checkpoint is a pair: `checkpoint.safetensors` holds the tensors, `checkpoint.json` everything else, with the digest
of the tensor file that belongs to it. There are two such pairs, written in turn: while one is being replaced the other
is whole, and a pair that was cut short, or changed by a single bit, is noticed and passed over. Nothing is unpickled.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import safetensors.torch

from fopng.lab.storage import atomic
from fopng.lab.storage.state import State, decode, encode

FORMAT = 2

SLOTS = ("checkpoint", "checkpoint.other")


class CheckpointError(ValueError):
    """A checkpoint is whole but was written by another version of the package."""


@final
@dataclass(frozen=True)
class Restored:
    """What was found: the newest whole state, and what had to be passed over to get there."""

    state: State
    generation: int
    """How many saves led to it; 0 when there is none, and then `state` is None."""
    damaged: tuple[str, ...]
    """One sentence for each pair that could not be used."""


@final
@dataclass(frozen=True)
class _Pair:
    """A pair of files that belong together, as they were read."""

    slot: str
    generation: int
    tree: Any
    content: bytes


@final
class Checkpoint:
    """The checkpoint of the run in a folder. For one process at a time: hold the run's lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._newest: tuple[str, int] | None = None

    def exists(self) -> bool:
        """Whether something was saved, whole or not."""
        return any((self.folder / f"{slot}.json").exists() for slot in SLOTS)

    def save(self, state: State) -> None:
        """Write the state over the older of the two pairs, never over the newest whole one.

        Raises:
            WriteError: the disk is full or closed; the last checkpoint is as it was.
            TypeError: the state holds something that is not plain data.
        """
        tree, tensors = encode(state)
        newest, generation = self._newest or self._find_newest()
        slot, generation = SLOTS[1 - SLOTS.index(newest)], generation + 1
        content = safetensors.torch.save(tensors, metadata={"generation": str(generation)})
        record = {"format": FORMAT, "generation": generation, "tensors": _digest(content), "state": tree}
        description = {"digest": _digest(_text(record)), "record": record}
        atomic.write_bytes(self.folder / f"{slot}.safetensors", content)
        atomic.write_bytes(self.folder / f"{slot}.json", _text(description) + b"\n")
        self._newest = slot, generation

    def load(self) -> Restored:
        """The newest state that is whole, if any, and what was damaged.

        Raises:
            CheckpointError: it was written by another version of the package.
        """
        damaged: list[str] = []
        pair = self._newest_pair(damaged)
        if pair is None:
            return Restored(None, 0, tuple(damaged))
        self._newest = pair.slot, pair.generation
        # Copied to memory of their own: in the file they lie where they may, and on a CPU that can move the last bit.
        tensors = {name: tensor.clone() for name, tensor in safetensors.torch.load(pair.content).items()}
        return Restored(decode(pair.tree, tensors), pair.generation, tuple(damaged))

    def clear(self) -> None:
        """Remove both pairs, the descriptions first, so that no tensors are left named without a description."""
        for ending in ("json", "safetensors"):
            for slot in SLOTS:
                (self.folder / f"{slot}.{ending}").unlink(missing_ok=True)
        self._newest = None

    def _find_newest(self) -> tuple[str, int]:
        pair = self._newest_pair([])
        return (SLOTS[1], 0) if pair is None else (pair.slot, pair.generation)

    def _newest_pair(self, damaged: list[str]) -> _Pair | None:
        return max(self._whole_pairs(damaged), key=lambda pair: pair.generation, default=None)

    def _whole_pairs(self, damaged: list[str]) -> Iterator[_Pair]:
        for slot in SLOTS:
            description = self.folder / f"{slot}.json"
            if not description.exists():
                continue
            try:
                yield _read_pair(slot, description)
            except _DamageError as error:
                damaged.append(str(error))


class _DamageError(Exception):
    def __init__(self, path: Path, found: str) -> None:
        super().__init__(f"Expected a whole checkpoint in {path}, got {found}. It was passed over.")


def _read_pair(slot: str, description: Path) -> _Pair:
    record = _read_record(description)
    if record["format"] != FORMAT:
        raise CheckpointError(
            f"Expected a checkpoint of format {FORMAT} in {description}, got {record['format']}. "
            "Go on with the version that wrote it, or start over."
        )
    path = description.with_name(f"{slot}.safetensors")
    content = path.read_bytes() if path.exists() else b""
    if _digest(content) != record["tensors"]:
        raise _DamageError(path, f"{len(content)} bytes that are not the ones its description names")
    return _Pair(slot, record["generation"], record["state"], content)


def _read_record(description: Path) -> dict[str, Any]:
    try:
        members = json.loads(description.read_bytes())
        record: dict[str, Any] = members["record"]
        whole = _digest(_text(record)) == members["digest"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _DamageError(description, f"no description of one ({type(error).__name__})") from error
    if not whole:
        raise _DamageError(description, "a description that was changed after it was written")
    return record


def _text(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
