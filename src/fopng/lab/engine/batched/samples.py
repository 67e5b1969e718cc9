"""The samples of R runs on one device: shared where the runs see the same, stacked where they do not."""

from collections.abc import Iterator, Sequence
from typing import final

import torch
from torch import Tensor

from fopng.lab.data.splits import Split
from fopng.lab.engine.batched.stacking import NotStackable


@final
class StackedSamples:
    """One split of every run: `x [R or 1, N, ...]` and `y [R or 1, N]`.

    Args:
        splits: one a run, all of one length.
        device: where the samples live.
        dtype: of inputs that are no whole numbers.
    """

    def __init__(self, splits: Sequence[Split], device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        if len({len(split) for split in splits}) > 1:
            raise NotStackable(f"Expected tasks of one size for runs side by side, got {[len(s) for s in splits]}.")
        pairs = [split.tensors(device) for split in (splits[:1] if are_shared(splits) else splits)]
        self.x, self.y = torch.stack([x for x, _ in pairs]), torch.stack([y for _, y in pairs])
        self.x = self.x.to(dtype) if self.x.is_floating_point() else self.x
        self.replicas = len(splits)
        self._own = torch.arange(self.x.shape[0], device=device)[:, None]

    def __len__(self) -> int:
        return self.x.shape[1]

    def rows(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Samples by number, `[R, n] -> [R, n, ...]`, each replica its own."""
        if self.x.shape[0] == 1:
            return self.x[0][index], self.y[0][index]
        return self.x[self._own, index], self.y[self._own, index]

    def chunks(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All samples in order, `[R, n, ...]`."""
        for start in range(0, len(self), size):
            x, y = self.x[:, start : start + size], self.y[:, start : start + size]
            yield x.expand(self.replicas, *x.shape[1:]), y.expand(self.replicas, *y.shape[1:])


def are_shared(splits: Sequence[Split]) -> bool:
    """Whether all runs see the same samples in the same order."""
    return all(splits[0].same_samples(split) for split in splits[1:])
