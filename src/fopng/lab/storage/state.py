"""A nested state as a JSON tree and a set of named tensors, and back, exactly.

What stands in JSON as it is: None, booleans, whole numbers, texts, lists, finite floats. The rest is an object of one
member that names its kind: `{"dict": [[key, value], ..]}`, `{"tuple": [..]}`, `{"float": "7ff8000000000000"}`,
`{"tensor": name}`, `{"bytes": [name, dtype, shape]}` for a dtype that the tensor file has no name for, and
`{"array": ..}` around one of these two for an array of numpy.
"""

import math
import struct
from collections.abc import Mapping
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

State = Any
"""None, bool, int, float, str, lists, tuples and dictionaries of these, tensors and numpy arrays."""

Tree = Any

_STORABLE = {
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint64, torch.uint32, torch.uint16, torch.uint8),
}


def encode(state: State) -> tuple[Tree, dict[str, Tensor]]:
    """The JSON tree of a state and the tensors it names; tensors that share their memory whole are named once."""
    encoder = _Encoder()
    return encoder.tree(state, "state"), encoder.tensors


def decode(tree: Tree, tensors: Mapping[str, Tensor]) -> State:
    """The state that `encode` took apart; tensors on the CPU, tied ones as one object, mappings as dictionaries."""
    if isinstance(tree, list):
        return [decode(member, tensors) for member in tree]
    if not isinstance(tree, dict):
        return tree
    [(kind, content)] = tree.items()
    if kind == "dict":
        return {decode(key, tensors): decode(value, tensors) for key, value in content}
    if kind == "tuple":
        return tuple(decode(member, tensors) for member in content)
    if kind == "float":
        return struct.unpack(">d", bytes.fromhex(content))[0]
    if kind == "tensor":
        return tensors[content]
    if kind == "array":
        return decode(content, tensors).numpy()
    name, dtype, shape = content
    if not isinstance(kind := getattr(torch, str(dtype), None), torch.dtype):
        raise ValueError(f"Expected a dtype in a checkpoint, got {dtype!r}")
    return tensors[name].view(kind).reshape(shape)


@final
class _Encoder:
    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._names: dict[tuple[object, ...], str] = {}
        self._storages: set[int] = set()

    def tree(self, value: State, where: str) -> Tree:
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"float": struct.pack(">d", value).hex()}
        if kind is list:
            return [self.tree(member, f"{where}[{index}]") for index, member in enumerate(value)]
        if kind is tuple:
            return {"tuple": self.tree(list(value), where)}
        if isinstance(value, dict):
            return {"dict": [[self._key(k, where), self.tree(v, f"{where}[{k!r}]")] for k, v in value.items()]}
        if isinstance(value, Tensor):
            return self._tensor(value, where)
        if kind is np.ndarray:
            return {"array": self._tensor(_from_numpy(value, where), where)}
        raise TypeError(
            f"Expected plain data, tensors or arrays in a checkpoint, got {kind.__name__} at {where}. "
            "Save its state_dict() or its numbers instead."
        )

    def _key(self, key: object, where: str) -> Tree:
        if isinstance(key, Tensor | np.ndarray):
            kind = type(key).__name__
            raise TypeError(f"Expected numbers and texts as keys, got {kind} at {where}. Use its name as key.")
        return self.tree(key, f"a key of {where}")

    def _tensor(self, value: Tensor, where: str) -> Tree:
        if value.layout is not torch.strided or value.is_quantized or value.is_meta:
            raise TypeError(
                f"Expected dense tensors with data in a checkpoint, got {value.layout} on {value.device} at {where}. "
                "Convert it with to_dense() or dequantize()."
            )
        if value.dtype in _STORABLE:
            return {"tensor": self._store(value)}
        flat = _dense(value).reshape(-1).view(torch.uint8)
        return {"bytes": [self._store(flat), str(value.dtype).removeprefix("torch."), list(value.shape)]}

    def _store(self, value: Tensor) -> str:
        memory = value.untyped_storage().data_ptr()
        place = (memory, value.device, value.storage_offset(), tuple(value.shape), value.stride(), value.dtype)
        identity = (*place, value.is_neg())
        if value.numel() and identity in self._names:
            return self._names[identity]
        name = self._names[identity] = str(len(self.tensors))
        # The tensor file wants tensors that share no memory: of several views, the later are copied.
        self.tensors[name] = _dense(value).clone() if memory in self._storages else _dense(value)
        self._storages.add(memory)
        return name


def _dense(value: Tensor) -> Tensor:
    return value.detach().resolve_conj().resolve_neg().cpu().contiguous()


def _from_numpy(value: "np.ndarray[Any, Any]", where: str) -> Tensor:
    try:
        return torch.from_numpy(np.require(value, requirements=["C", "W", "A"]))
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"Expected an array of numbers, got {value.dtype} at {where}. Save its numbers instead."
        ) from error
