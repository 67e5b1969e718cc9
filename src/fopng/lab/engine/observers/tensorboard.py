"""Curves in TensorBoard."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self, final

from fopng.lab.engine.observers.events import RunEnded, RunStarted
from fopng.lab.engine.observers.tracker import Tracked, Tracker


@final
class TensorBoard(Tracker):
    """Write where `tensorboard --logdir` finds it.

    Args:
        folder: of this run alone.
        every: one step in so many is measured.
    """

    package: ClassVar[str] = "tensorboard"

    def __init__(self, folder: Path, *, every: int) -> None:
        super().__init__(every=every)
        self._folder = folder

    @classmethod
    def of(cls, tracked: Tracked) -> Self:
        return cls(tracked.run / "tensorboard", every=tracked.every)

    def start(self, event: RunStarted) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # what a killed process wrote beyond its last checkpoint is written again, and hidden by this
        self._writer = SummaryWriter(str(self._folder), purge_step=event.done + 1 if event.done else None)

    def write(self, scalars: Mapping[str, float], step: int) -> None:
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, step)

    def end(self, event: RunEnded) -> None:
        self._writer.close()
