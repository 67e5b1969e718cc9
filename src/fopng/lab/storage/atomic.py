"""Files that are either wholly written or not at all, whatever happens in between."""

import contextlib
import hashlib
import json
import os
import secrets
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

SUFFIX = ".partial"


class WriteError(OSError):
    """A file could not be written; what stood there before still stands."""


def write_bytes(path: Path, *parts: bytes) -> None:
    """Replace `path` by these bytes: a temporary name, flushed to the disk, renamed, and the folder flushed."""
    partial = path.with_name(f".{path.name}.{_host()}-{os.getpid()}-{secrets.token_hex(4)}{SUFFIX}")
    with as_write_error(path):
        _remove_abandoned(path)
        try:
            with partial.open("xb") as file:
                file.writelines(parts)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
            _flush_folder(path.parent)
        finally:
            # After the rename there is nothing left under this name; after a failure it gives the room back.
            partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text` in UTF-8, whole or not at all."""
    write_bytes(path, text.encode("utf-8"))


@contextlib.contextmanager
def as_write_error(path: Path) -> Iterator[None]:
    """Turn the system's error into one that says what was being written and what to do."""
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        raise WriteError(
            f"Expected to write {path}, got: {error.strerror or error}. What was saved before is unchanged. "
            "Free some space or mend the permissions there, then run the same command again."
        ) from error


def remove_partials(folder: Path) -> None:
    """Remove what killed writers left behind. Only for a folder that nobody else is writing to."""
    for partial in folder.glob(f".*{SUFFIX}"):
        partial.unlink(missing_ok=True)


def _remove_abandoned(path: Path) -> None:
    """Remove what writers of this file left that were killed on this machine."""
    begins = f".{path.name}.{_host()}-"
    for name in os.listdir(path.parent):
        if name.startswith(begins) and name.endswith(SUFFIX):
            writer = name.removeprefix(begins).partition("-")[0]
            if writer.isdigit() and not is_alive(int(writer)):
                path.with_name(name).unlink(missing_ok=True)


@cache
def _host() -> str:
    """This machine, in a few letters that a file's name may have."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def is_alive(process: int) -> bool:
    """Whether a process with this number runs on this machine."""
    if sys.platform == "win32":
        import ctypes

        synchronize = 0x00100000
        handle = ctypes.windll.kernel32.OpenProcess(synchronize, False, process)
        if handle:
            ctypes.windll.kernel32.CloseHandle(handle)
        return bool(handle)
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _flush_folder(folder: Path) -> None:
    """Make the names in a folder durable; Windows cannot open folders and needs no such thing."""
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def readable_json(value: object, indent: str = "") -> str:
    """JSON for the eye: a member a line, and a list of numbers, such as a matrix's row, on one.

    >>> print(readable_json({"accuracy": [[1, 2], [3, 4]]}))
    {
      "accuracy": [
        [1, 2],
        [3, 4]
      ]
    }
    """
    deeper = indent + "  "
    if isinstance(value, Mapping) and value:
        members = [f"{json.dumps(str(name))}: {readable_json(member, deeper)}" for name, member in value.items()]
        return _block("{", members, "}", indent)
    if isinstance(value, Sequence) and any(isinstance(member, list | tuple | Mapping) for member in value):
        return _block("[", [readable_json(member, deeper) for member in value], "]", indent)
    return json.dumps(dict(value) if isinstance(value, Mapping) else value, allow_nan=False)


def _block(opening: str, members: Sequence[str], closing: str, indent: str) -> str:
    joint = f",\n{indent}  "
    return f"{opening}\n{indent}  {joint.join(members)}\n{indent}{closing}"
