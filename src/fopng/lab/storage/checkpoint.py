"""Saving the state of a run so that a crash at any moment loses at most the work since the last save.

There are two files, written in turn: while one is replaced the other is whole. Each begins with the SHA-256 of the
rest, a safetensors file whose metadata holds as JSON what is no tensor. A file that was cut short, or changed by a
single bit, is passed over. By hand, because `torch.save` notices no changed bit and its files have to be unpickled.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import final

import safetensors.torch
from safetensors import SafetensorError

from fopng.lab.storage import atomic
from fopng.lab.storage.parsing import parse_json
from fopng.lab.storage.state import State, decode, encode

FORMAT = 4

SLOTS = ("checkpoint.0", "checkpoint.1")
"""The files: save number n replaces file n % 2."""

_DIGEST = hashlib.sha256().digest_size


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
    """One sentence for each file that could not be used."""


@final
class Checkpoint:
    """The checkpoint of the run in a folder. For one process at a time: hold the run's lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._generation: int | None = None

    def exists(self) -> bool:
        """Whether something was saved, whole or not."""
        return any((self.folder / slot).exists() for slot in SLOTS)

    def save(self, state: State) -> None:
        """Write the state over the older of the two files, never over the newest whole one.

        Raises:
            WriteError: the disk is full or closed; the last checkpoint is as it was.
            TypeError: the state holds something that is not plain data.
        """
        tree, tensors = encode(state)
        if self._generation is None:
            self._generation = max([0, *self._whole([])])
        generation = self._generation + 1
        facts = {"format": FORMAT, "generation": generation, "state": tree}
        content = safetensors.torch.save(tensors, {"facts": json.dumps(facts, separators=(",", ":"))})
        atomic.write_bytes(self.folder / SLOTS[generation % 2], hashlib.sha256(content).digest(), content)
        self._generation = generation

    def load(self) -> Restored:
        """The newest state that is whole, if any, and what was damaged.

        Raises:
            CheckpointError: it was written by another version of the package.
        """
        damaged: list[str] = []
        whole = self._whole(damaged)
        self._generation = generation = max([0, *whole])
        if not generation:
            return Restored(None, 0, tuple(damaged))
        tree, content = whole[generation]
        with _as_checkpoint_error(self.folder):
            # Copied to memory of their own: in the file they lie where they may, and on a CPU that can move the last bit.
            tensors = {name: tensor.clone() for name, tensor in safetensors.torch.load(content).items()}
            return Restored(decode(tree, tensors), generation, tuple(damaged))

    def clear(self) -> None:
        """Remove both files."""
        for slot in SLOTS:
            (self.folder / slot).unlink(missing_ok=True)
        self._generation = None

    def _whole(self, damaged: list[str]) -> dict[int, tuple[object, bytes]]:
        """The JSON tree and the safetensors file of each whole generation; `damaged` gets a sentence for each other."""
        found = {}
        for path in (self.folder / slot for slot in SLOTS):
            saved = path.read_bytes() if path.exists() else None
            if saved is None:
                continue
            content = saved[_DIGEST:]
            if hashlib.sha256(content).digest() != saved[:_DIGEST]:
                damaged.append(
                    f"Expected a whole checkpoint in {path}, got one cut short or changed. It was passed over."
                )
                continue
            with _as_checkpoint_error(path):
                header = parse_json(content[8 : 8 + int.from_bytes(content[:8], "little")])
                facts = parse_json(header["__metadata__"]["facts"])
                _check_format(facts["format"], path)
                found[int(facts["generation"])] = facts["state"], content
        return found


@contextlib.contextmanager
def _as_checkpoint_error(path: Path) -> Iterator[None]:
    """A file that is whole, by its SHA-256, and lies about what is in it."""
    try:
        yield
    except CheckpointError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError, SafetensorError) as error:
        raise CheckpointError(
            f"Expected a checkpoint in {path}, got a file that is made otherwise: {error}. Delete it to start over."
        ) from error


def _check_format(found: object, path: Path) -> None:
    if found != FORMAT:
        raise CheckpointError(
            f"Expected a checkpoint of format {FORMAT} in {path}, got {found}. "
            "Go on with the version that wrote it, or start over."
        )
