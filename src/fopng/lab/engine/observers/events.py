"""What happens in a run, as plain facts, and who is told."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, final

import torch

from fopng.lab.engine.randomness import random_states_kept


@final
@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run starts, or goes on after an interruption."""

    label: str
    """The run in words, such as `split-mnist fopng seed 0`."""
    tasks: int
    steps: int
    """How many steps the whole run has."""
    done: int
    """How many of them an earlier process has done."""
    facts: Mapping[str, object]
    """The configuration; of the first, where there are several."""
    runs: int = 1
    """How many runs are done side by side."""


@final
@dataclass(frozen=True, slots=True)
class TaskStarted:
    """A task starts; tasks and epochs count from 0."""

    task: int


@final
@dataclass(frozen=True, slots=True)
class EpochStarted:
    """An epoch of a task starts."""

    task: int
    epoch: int


@final
@dataclass(frozen=True, slots=True)
class StepDone:
    """A step was taken. What costs time to know is measured only when an observer asks."""

    task: int
    epoch: int
    step: int
    """How many steps of the run are done, this one among them."""
    measure: Callable[[], Mapping[str, float]]
    """Loss, removed fraction and what else the method can tell about this step. Not for every step: it waits."""


@final
@dataclass(frozen=True, slots=True)
class TaskEnded:
    """A task was learnt, and the method has kept what it keeps of it."""

    task: int
    seconds: float


@final
@dataclass(frozen=True, slots=True)
class Evaluated:
    """The accuracies after a task."""

    task: int
    part: Literal["test", "validation"]
    accuracies: tuple[float | None, ...]
    average: float
    """The mean over the tasks seen."""


@final
@dataclass(frozen=True, slots=True)
class RunEnded:
    """The run ended, in whatever way; always the last event."""

    outcome: Literal["finished", "diverged", "interrupted", "failed"]
    seconds: float


Event = RunStarted | TaskStarted | EpochStarted | StepDone | TaskEnded | Evaluated | RunEnded


class Observer(Protocol):
    """Anything that can be told what happens."""

    def observe(self, event: Event) -> None:
        """Take note of an event. Events are passed over by those they do not concern."""


@final
class Audience:
    """The observers of a run. Random numbers that they draw are not missing in the run."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._observers = tuple(observers)

    def __bool__(self) -> bool:
        return bool(self._observers)

    def tell(self, event: Event) -> None:
        """Tell everybody."""
        for observer in self._observers:
            # Our own observers draw nothing; keeping the random states for strangers costs about 0.1 ms an event.
            if type(observer).__module__.startswith(__package__):
                observer.observe(event)
            else:
                with random_states_kept(present_device()):
                    observer.observe(event)


def present_device() -> torch.device:
    """The device whose random state may matter."""
    # A process that has not used CUDA must not start to because somebody watches.
    return torch.device("cuda" if torch.cuda.is_initialized() else "cpu")
