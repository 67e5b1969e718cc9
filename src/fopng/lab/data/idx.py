"""IDX, the format of MNIST and Fashion-MNIST: a big-endian header, then unsigned bytes."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import final

import numpy as np

from fopng.lab.data.contents import Arrays, ByteArray, Contents
from fopng.lab.data.errors import BadFileError
from fopng.lab.data.formats import Format

UNSIGNED_BYTE = 0x08


@final
class Idx(Format):
    """MNIST's four files. `dotted` names them as some unpackers do: train-images.idx3-ubyte."""

    def __init__(self, *, dotted: bool = False) -> None:
        mark = "." if dotted else "-"
        self.files = {
            f"{split}-{kind}": f"{prefix}-{kind}{mark}idx{dimensions}-ubyte"
            for split, prefix in (("train", "train"), ("test", "t10k"))
            for kind, dimensions in (("images", 3), ("labels", 1))
        }

    def limits(self, contents: Contents) -> dict[str, int]:
        """The exact size of each file: header and one byte a number."""
        return {file: self._header(part) + math.prod(contents.shape(part)) for part, file in self.files.items()}

    def decode(self, files: Mapping[str, bytes], contents: Contents, origin: str) -> Arrays:
        """The four arrays, images as [n, 1, height, width]."""
        arrays = {part: parse_idx(files[file], f"{origin}: {file}") for part, file in self.files.items()}
        for part, array in arrays.items():
            if array.size != math.prod(contents.shape(part)):
                shape = contents.shape(part)
                raise BadFileError(f"{origin}: {self.files[part]}", f"Expected shape {shape}, got {array.shape}.")
        return {part: array.reshape(contents.shape(part)) for part, array in arrays.items()}

    def _header(self, part: str) -> int:
        return 16 if part.endswith("images") else 8


def parse_idx(data: bytes, file: str) -> ByteArray:
    """The array in one IDX file of unsigned bytes; anything else raises BadFileError naming `file`.

    >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 5, 7]), "labels")
    array([5, 7], dtype=uint8)
    """
    if len(data) < 4 or data[:2] != b"\0\0":
        raise BadFileError(file, f"Expected an IDX file (two zero bytes first), got {data[:4].hex() or 'nothing'}.")
    kind, dimensions = data[2], data[3]
    if kind != UNSIGNED_BYTE:
        raise BadFileError(file, f"Expected IDX type 0x08 (unsigned bytes), got {kind:#04x}.")
    header = 4 + 4 * dimensions
    if dimensions == 0 or len(data) < header:
        raise BadFileError(
            file, f"Expected the sizes of {dimensions or 'some'} dimensions, got {len(data)} bytes in all."
        )
    shape = struct.unpack(f">{dimensions}I", data[4:header])
    if len(data) - header != math.prod(shape):
        raise BadFileError(file, f"Expected {math.prod(shape):,} bytes for shape {shape}, got {len(data) - header:,}.")
    try:
        return np.frombuffer(data, np.uint8, offset=header).reshape(shape)
    except ValueError as error:  # a shape NumPy cannot hold: too many dimensions, or sizes that only multiply to zero
        raise BadFileError(file, f"Expected a shape of an array, got {dimensions} dimensions.") from error
