"""Curves in TensorBoard."""

from pathlib import Path
from typing import final

from fopng.observers.events import Evaluated, Event, RunEnded, StepDone


@final
class TensorBoard:
    """Write what one step in `every` measured, and the accuracies, where TensorBoard finds them."""

    def __init__(self, folder: Path, *, every: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ModuleNotFoundError(
                "Expected the package tensorboard, got none. Install it with: pip install 'fopng[tensorboard]'"
            ) from error
        self._writer = SummaryWriter(str(folder))
        self._every = every
        self._step = 0

    def observe(self, event: Event) -> None:
        """Write the scalars of an event."""
        if isinstance(event, StepDone):
            self._step = event.step
            if event.step % self._every == 0:
                for name, value in event.measure().items():
                    self._write(f"step/{name}", value)
        elif isinstance(event, Evaluated):
            self._write(f"{event.part}/average", event.average)
            for task, accuracy in enumerate(event.accuracies, start=1):
                if accuracy is not None:
                    self._write(f"{event.part}/task {task}", accuracy)
        elif isinstance(event, RunEnded):
            self._writer.close()

    def _write(self, name: str, value: float) -> None:
        self._writer.add_scalar(name, value, self._step)
