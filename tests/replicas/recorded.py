"""What a CUDA graph does, without a GPU: the operations of a step noted once, and done again on the very same tensors."""

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

WAITS = {
    torch.ops.aten._local_scalar_dense.default,
    torch.ops.aten.nonzero.default,
    torch.ops.aten.masked_select.default,
}
"""What a device would have to be waited for: an error while a step is captured."""


class Outside:
    """A tensor that the step reads and did not make. A graph knows its place, and does not keep it there."""

    def __init__(self, tensor):
        self._memory, self._dtype = StorageWeakRef(tensor.untyped_storage()), tensor.dtype
        self._view = tensor.storage_offset(), tensor.size(), tensor.stride()

    def tensor(self):
        assert not self._memory.expired(), f"memory that the step reads is gone: {tuple(self._view[1])}, {self._dtype}"
        storage = torch.UntypedStorage._new_with_weak_ptr(self._memory.cdata)
        return torch.empty(0, dtype=self._dtype).set_(storage, *self._view)


class Recorded(TorchDispatchMode):
    """Notes every operation inside; `replay` does them again, each result written where the first one lies.

    A tensor that was replaced since is not noticed, as a graph would not: a step that reads one goes on with the old numbers.
    One that is gone is an error, where a graph would read what lies there now.
    """

    def __init__(self, step):
        super().__init__()
        self._calls, self._fresh, self._found, self._made = [], True, set(), set()
        with self:
            step()
        self._calls = [tree_map_only(torch.Tensor, self._note, call) for call in self._calls]

    def __torch_dispatch__(self, function, types, arguments=(), more=None):
        assert function not in WAITS, f"{function} waits for the device"
        self._found |= _memories(arguments, more) - self._made
        result = function(*arguments, **(more or {}))
        self._made |= _memories(result) - self._found
        self._calls.append((function, arguments, more or {}, result))
        return result

    def _note(self, tensor):
        return tensor if _memory(tensor) in self._made else Outside(tensor)

    @torch.no_grad()
    def replay(self):
        """Take the step; the first time it has been taken already."""
        if self._fresh:
            self._fresh = False
            return
        for call in self._calls:
            function, arguments, more, result = tree_map_only(Outside, Outside.tensor, call)
            for new, old in zip(tree_leaves(function(*arguments, **more)), tree_leaves(result), strict=True):
                if isinstance(new, torch.Tensor) and new.data_ptr() != old.data_ptr():
                    old.copy_(new)


def _memory(tensor):
    return tensor.untyped_storage()._cdata


def _memories(*tree):
    return {_memory(leaf) for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)}
