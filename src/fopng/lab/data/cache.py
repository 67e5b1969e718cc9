"""The user's cache folder: decoded arrays as .npy files, written whole or not at all, and the lock that guards them.

Worth its code: a cached dataset opens in a millisecond (decoding takes 0.3 to 1.4 seconds) and processes share its memory.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from fopng.lab.data.errors import BadFileError
from fopng.lab.data.formats import PARTS, Arrays, ByteArray, Contents
from fopng.lab.storage import atomic
from fopng.lab.storage.parsing import parse_json

NOTE = "checked.json"
"""Beside the arrays: their sizes and times when they were last known to be right."""


def cache_folder() -> Path:
    """FOPNG_CACHE, or `fopng` in the cache folder of this system's user."""
    if own := os.environ.get("FOPNG_CACHE"):
        return Path(own).expanduser()
    from pooch import os_cache  # a tenth of a second, of use only here

    return Path(os_cache("fopng"))


def arrays_folder(name: str) -> Path:
    """Where the decoded arrays of a dataset are."""
    return cache_folder() / "arrays" / name


@contextmanager
def locked(name: str, *, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Only one process at a time decodes or fetches a dataset; `waiting` is called when another one holds the lock."""
    folder = cache_folder() / "locks"
    with ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(folder / f"{name}.lock")
            try:
                held.enter_context(lock.acquire(blocking=False))
            except Timeout:
                waiting()
                held.enter_context(lock)
        except OSError as error:
            # Without a place for the lock there is none to share.
            warn_unwritable(error)
        yield


def open_arrays(name: str, contents: Contents) -> Arrays | None:
    """The decoded arrays, memory-mapped read-only, or None unless all four are there in their right shapes."""
    try:
        files = {part: arrays_folder(name) / f"{part}.npy" for part in PARTS}
        arrays: Arrays = {
            part: _mapped(file, file.stat().st_mtime_ns, file.stat().st_ino) for part, file in files.items()
        }
    except Exception:  # NumPy's parser of a damaged header raises almost anything
        return None
    right = all(arrays[part].shape == contents.shape(part) and arrays[part].dtype == np.uint8 for part in PARTS)
    return arrays if right and _unchanged(name, arrays, contents) else None


def _unchanged(name: str, arrays: Arrays, contents: Contents) -> bool:
    """Whether the arrays are the known ones: read again only when a file was written since they were last known to be."""
    note = arrays_folder(name) / NOTE
    stamps = {part: [(stat := (note.with_name(f"{part}.npy")).stat()).st_size, stat.st_mtime_ns] for part in PARTS}
    with suppress(OSError, ValueError):
        if parse_json(note.read_bytes()) == stamps:
            return True
    try:
        contents.check(arrays, str(note.parent))
    except BadFileError:
        return False
    with suppress(OSError):
        atomic.write_text(note, json.dumps(stamps))
    return True


@lru_cache(maxsize=32)
def _mapped(file: Path, *written: int) -> ByteArray:
    """One array for all who open a file, as long as nobody writes it anew."""
    # A plain array over the mapped memory: np.memmap itself makes every batch dearer.
    return np.asarray(np.load(file, mmap_mode="r"))


def save_arrays(name: str, arrays: Arrays) -> None:
    """Write the four arrays to a temporary folder, flush them, and rename the folder into place; the caller holds the lock."""
    target = arrays_folder(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_scratch(target)
    scratch = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{name}-"))
    try:
        for part in PARTS:
            with (scratch / f"{part}.npy").open("wb") as stream:
                np.save(stream, np.ascontiguousarray(arrays[part]))
                stream.flush()
                os.fsync(stream.fileno())
        # A damaged folder is moved away first: a rename never replaces a folder that holds files.
        if target.exists():
            target.rename(scratch.with_name(f"{scratch.name}-damaged"))
        scratch.rename(target)
    finally:
        _remove_scratch(target)


def _remove_scratch(target: Path) -> None:
    """Remove half-written arrays, of this process or of one that was killed."""
    for left in target.parent.glob(f".{target.name}-*"):
        shutil.rmtree(left, ignore_errors=True)


def remove_arrays(name: str) -> None:
    """Forget the decoded arrays of a dataset."""
    shutil.rmtree(arrays_folder(name), ignore_errors=True)


def warn_unwritable(error: Exception) -> None:
    """Say that arrays cannot be kept: loading works, but decodes again every time."""
    warnings.warn(
        f"Expected a cache folder that can be written, got: {error}. Every load decodes again; set FOPNG_CACHE to one.",
        stacklevel=2,
    )
