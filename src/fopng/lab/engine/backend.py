"""What the training loop asks of whoever trains: one run, or many of the same shape side by side."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fopng.lab.engine.costs import wait_for
from fopng.lab.engine.evaluation import Answers
from fopng.lab.engine.plan import Part, Plan
from fopng.lab.engine.stages import Stage


class Backend(ABC):
    """R runs that take their steps together. The loop says what comes when, a backend how it is done.

    Runs whose numbers are no longer finite are left out of what follows, and the others do not notice.

    Attributes:
        plans: the runs.
        device: where they are trained.
        stages: what is learnt in one go, one after the other; of the first run.
        sharers: how many groups of runs use the device at the same time, this one among them.
    """

    plans: Sequence[Plan]
    device: torch.device
    stages: Sequence[Stage]
    sharers: int = 1

    @abstractmethod
    def begin_task(self, stage: Stage) -> None:
        """Get ready for a stage, or for the rest of it."""

    @abstractmethod
    def refresh(self) -> None:
        """Have the method learn about the new task, before an epoch."""

    @abstractmethod
    def train_epoch(self, epoch: int, start: int, done: int, after_step: Callable[[], None]) -> None:
        """Take the steps of an epoch.

        Args:
            epoch: its number.
            start: the first step of it to take.
            done: how many steps of the run are done.
            after_step: called after each.
        """

    @abstractmethod
    def end_task(self) -> None:
        """Have the method keep what it keeps of the stage."""

    @abstractmethod
    def alive(self) -> list[bool]:
        """Which runs still have finite numbers."""

    @abstractmethod
    def answers(self, task: int, part: Part) -> Answers:
        """What the runs answer now to the samples of a task, in order."""

    @abstractmethod
    def loss(self) -> Tensor:
        """The loss of the last step, `[R]`."""

    @abstractmethod
    def measure_step(self) -> dict[str, Tensor]:
        """What the method measures of the last step, by name, `[R]`."""

    @abstractmethod
    def diagnose(self) -> dict[str, Tensor]:
        """Figures of the last step for logs, by name, `[R]` or one for all."""

    @abstractmethod
    def measure_task(self) -> dict[str, Tensor]:
        """What the method measures of what it keeps, by name, `[R]`."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Everything that training changes, as plain data and tensors."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take a state over."""

    def wait(self) -> None:
        """Wait for what the device was given."""
        wait_for(self.device)
