"""A reader of pickles that can build nothing but arrays, bytes, strings, numbers, lists and dictionaries.

Nothing that a file names is imported or called. Opcodes are checked before the first one runs, and the names that a
pickled NumPy array needs are answered with stand-ins of our own.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from typing import Any, TypeAlias

import numpy as np

from fopng.lab.data.contents import ByteArray
from fopng.lab.data.errors import BadFileError

Plain: TypeAlias = (
    "ByteArray | bytes | str | int | float | bool | list[Plain] | tuple[Plain, ...] | dict[Any, Plain] | None"
)

OPCODES = """
PROTO STOP FRAME MARK POP POP_MARK DUP NONE NEWTRUE NEWFALSE
INT BININT BININT1 BININT2 LONG LONG1 FLOAT BINFLOAT
STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8
UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8
EMPTY_LIST LIST APPEND APPENDS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3
EMPTY_DICT DICT SETITEM SETITEMS GET BINGET LONG_BINGET PUT BINPUT LONG_BINPUT MEMOIZE
GLOBAL STACK_GLOBAL REDUCE BUILD
"""
ALLOWED = frozenset(OPCODES.split())
MEMO_WRITES = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})


class _DType:
    """Stands in for numpy.dtype: only single bytes are read."""

    def __init__(self, code: Any, align: Any = False, copy: Any = True) -> None:
        if code not in ("u1", b"u1", "|u1", b"|u1"):
            raise pickle.UnpicklingError(f"an array of {code!r}, not of unsigned bytes")

    def __setstate__(self, state: Any) -> None:
        """Byte order and alignment say nothing about single bytes."""


class _Array:
    """Stands in for numpy.ndarray until its state is there."""

    value: ByteArray

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, data = state
        sizes = tuple(int(size) for size in shape)
        if not isinstance(dtype, _DType) or not isinstance(data, bytes) or fortran or min(sizes, default=-1) < 0:
            raise pickle.UnpicklingError("an array that is not rows of unsigned bytes")
        if math.prod(sizes) != len(data):
            raise pickle.UnpicklingError(f"{len(data)} bytes for an array of shape {sizes}")
        self.value = np.frombuffer(data, np.uint8).reshape(sizes)


def _reconstruct(kind: Any, shape: Any, code: Any) -> _Array:
    return _Array()


def _encode(text: Any, encoding: Any) -> bytes:
    """How Python 3 writes bytes in protocol 2; `text` has one character a byte."""
    if not isinstance(text, str) or encoding not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError("text that does not stand for bytes")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    """How Python 3 writes b"" in protocol 2."""
    return b""


STAND_INS = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _DType,
    ("_codecs", "encode"): _encode,
    ("builtins", "bytes"): _no_bytes,
    ("__builtin__", "bytes"): _no_bytes,
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in STAND_INS:
            raise pickle.UnpicklingError(f"{module}.{name}, which is no plain data")
        return STAND_INS[module, name]


def read_pickle(data: bytes, file: str) -> Plain:
    """The plain data in a pickle; BadFileError, naming `file`, for anything else.

    >>> read_pickle(pickle.dumps({"labels": [1, 2]}), "batch")
    {'labels': [1, 2]}
    """
    try:
        _check_opcodes(data)
        return _plain(_Reader(io.BytesIO(data), encoding="bytes").load(), depth=0)
    except BadFileError:
        raise
    # A damaged pickle can raise nearly anything from inside the unpickler; all of it means the same to the user.
    except Exception as error:
        raise BadFileError(file, f"Expected a pickle of plain arrays, got {error or type(error).__name__}.") from error


def _check_opcodes(data: bytes) -> None:
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name not in ALLOWED:
            raise pickle.UnpicklingError(f"the opcode {opcode.name}")
        # The unpickler makes room for every number up to this one, so a damaged byte could ask for all memory.
        if opcode.name in MEMO_WRITES and not 0 <= int(argument or 0) <= len(data):
            raise pickle.UnpicklingError(f"memo entry {argument}")


def _plain(value: Any, depth: int) -> Plain:
    """`value` with stand-ins turned into arrays; anything else is refused."""
    if depth > 8:
        raise pickle.UnpicklingError("data nested more than eight deep")
    if isinstance(value, _Array):
        return value.value
    if value is None or isinstance(value, (bytes, str, int, float)):
        return value
    if isinstance(value, list):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, tuple):
        return tuple(_plain(item, depth + 1) for item in value)
    if isinstance(value, dict):
        return {_plain(key, depth + 1): _plain(item, depth + 1) for key, item in value.items()}
    raise pickle.UnpicklingError(f"a {type(value).__name__}")
