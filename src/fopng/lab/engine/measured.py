"""Quantities that methods measure, by name: averaged over the steps of a task, and collected task by task."""

from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor

Numbers = dict[str, list[float | None]]
"""By name, one number a run; None where there is none."""


@final
class TaskMeans:
    """Means over the steps of a task, for each run; summed on the device, so that nobody waits for it.

    A run without a finite number has None.
    """

    def __init__(self) -> None:
        self._sums: dict[str, tuple[Tensor, Tensor]] = {}

    @torch.no_grad()
    def add(self, measured: Mapping[str, Tensor]) -> None:
        """Add what a step measured, one number or one for each run."""
        for name, found in measured.items():
            values = found.reshape(-1)
            total, count = self._sums.get(name) or (
                torch.zeros_like(values, dtype=torch.float64),
                torch.zeros_like(values, dtype=torch.int64),
            )
            finite = values.isfinite()
            self._sums[name] = total + torch.where(finite, values, 0.0), count + finite

    def take(self) -> Numbers:
        """The means; the next task starts anew."""
        sums, self._sums = self._sums, {}
        return {
            name: [t / c if c else None for t, c in zip(total.tolist(), count.tolist(), strict=True)]
            for name, (total, count) in sums.items()
        }

    def state_dict(self) -> dict[str, tuple[Tensor, Tensor]]:
        """The sums so far."""
        return dict(self._sums)

    def load_state_dict(self, state: Mapping[str, tuple[Tensor, Tensor]], device: torch.device) -> None:
        """Go on with these sums."""
        self._sums = {name: (total.to(device), count.to(device)) for name, (total, count) in state.items()}


def numbers(measured: Mapping[str, Tensor], runs: int) -> dict[str, list[float]]:
    """One number a run, from one for each or one for all."""
    return {name: found.reshape(-1).expand(runs).tolist() for name, found in measured.items()}


def note_task(rows: Numbers, task: int, found: Mapping[str, float | None]) -> None:
    """Add what was measured in a task to the rows of a run, one number a task; None where nothing was measured."""
    for name in {**rows, **found}:
        row = rows.setdefault(name, [])
        row.extend([None] * (task - len(row)))
        row.append(found.get(name))
