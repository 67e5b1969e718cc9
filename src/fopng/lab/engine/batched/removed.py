"""The mean share of each run's gradient that the projection removes, summed up on the device."""

from typing import final

import torch
from torch import Tensor

from fopng.optim.diagnostics import removed_fraction
from fopng.optim.pipeline import Taken


@final
class RemovedFractions:
    """Sums over the steps of a task, one a run.

    Args:
        count: the number of runs.
        device: where the gradients are.
    """

    def __init__(self, count: int, device: torch.device) -> None:
        self._total = torch.zeros(count, dtype=torch.float64, device=device)
        self._counted = torch.zeros(count, dtype=torch.int64, device=device)

    @torch.no_grad()
    def add(self, taken: Taken) -> None:
        """Note a step, where there is something to take away."""
        if taken.prepared.remover is None:
            return
        fraction = removed_fraction(taken)
        counts = fraction.isfinite()
        self._total += torch.where(counts, fraction, 0.0)
        self._counted += counts

    def take(self) -> list[float | None]:
        """The means, None without a step; and start anew."""
        pairs = zip(self._total.tolist(), self._counted.tolist(), strict=True)
        means = [total / counted if counted else None for total, counted in pairs]
        self._total.zero_()
        self._counted.zero_()
        return means

    def state_dict(self) -> dict[str, Tensor]:
        """The sums."""
        return {"total": self._total, "counted": self._counted}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take sums over."""
        self._total.copy_(state["total"])
        self._counted.copy_(state["counted"])
