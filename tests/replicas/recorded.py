"""What a CUDA graph does, without a GPU: the operations of a step noted once, and done again on the very same tensors."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

WAITS = {
    torch.ops.aten._local_scalar_dense.default,
    torch.ops.aten.nonzero.default,
    torch.ops.aten.masked_select.default,
}
"""What a device would have to be waited for: an error while a step is captured."""


class Recorded(TorchDispatchMode):
    """Notes every operation inside; `replay` does them again, each result written where the first one lies.

    A tensor that was replaced since is not noticed, as a graph would not: a step that reads one goes on with the old numbers.
    """

    def __init__(self, step):
        super().__init__()
        self._calls, self._fresh = [], True
        with self:
            step()

    def __torch_dispatch__(self, function, types, arguments=(), more=None):
        assert function not in WAITS, f"{function} waits for the device"
        result = function(*arguments, **(more or {}))
        self._calls.append((function, arguments, more or {}, result))
        return result

    @torch.no_grad()
    def replay(self):
        """Take the step; the first time it has been taken already."""
        if self._fresh:
            self._fresh = False
            return
        for function, arguments, more, result in self._calls:
            for new, old in zip(tree_leaves(function(*arguments, **more)), tree_leaves(result), strict=True):
                if isinstance(new, torch.Tensor) and new.data_ptr() != old.data_ptr():
                    old.copy_(new)
