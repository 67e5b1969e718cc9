"""Reading JSON and TOML that may be damaged or made to do harm: every problem is a `ValueError`."""

import json
import tomllib
from pathlib import Path
from typing import Any

LARGEST_JSON = 1 << 28
"""Bytes; results of ten thousand runs take a tenth of it."""

LARGEST_TOML = 1 << 20
"""Bytes; nobody writes so many settings."""


def read_bytes(path: Path, largest: int) -> bytes:
    """The content of a file; `ValueError` for one that is too large to be what it should."""
    with path.open("rb") as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise ValueError(f"Expected at most {largest:,} bytes in {path}, got more. It is another file.")
    return content


def parse_json(content: bytes | str) -> Any:
    """The value that JSON describes."""
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("Expected JSON, got brackets within brackets, too deep to be read.") from error


def read_json(path: Path) -> Any:
    """The value in a JSON file."""
    return parse_json(read_bytes(path, LARGEST_JSON))


def read_toml(path: Path) -> dict[str, Any]:
    """The members of a TOML file."""
    try:
        return tomllib.loads(read_bytes(path, LARGEST_TOML).decode("utf-8"))
    except RecursionError as error:
        raise ValueError("brackets within brackets, too deep to be read") from error
