"""What happens in a run, and the observers that are told. They cannot change a number."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import gcd
from typing import ClassVar, Literal, Protocol, final

import torch

from fopng.lab.engine.randomness import random_states_kept

Ending = Literal["finished", "diverged", "interrupted", "failed"]


@final
@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run starts, or goes on after an interruption."""

    kind: ClassVar[str] = "run started"
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
    """How many runs are trained together."""


@final
@dataclass(frozen=True, slots=True)
class TaskStarted:
    """A task starts; tasks and epochs count from 0."""

    kind: ClassVar[str] = "task started"
    task: int


@final
@dataclass(frozen=True, slots=True)
class EpochStarted:
    """An epoch of a task starts."""

    kind: ClassVar[str] = "epoch started"
    task: int
    epoch: int


@final
@dataclass(frozen=True, slots=True)
class StepDone:
    """A step was taken. What costs time to know is measured only when an observer asks."""

    kind: ClassVar[str] = "step"
    task: int
    epoch: int
    step: int
    """How many steps of the run are done, this one among them."""
    measure: Callable[[], Mapping[str, float]]
    """Loss, removed fraction and what else the method measures of this step. Not for every step: it waits for the device."""


@final
@dataclass(frozen=True, slots=True)
class TaskEnded:
    """A task was learnt, and the method has kept what it keeps of it."""

    kind: ClassVar[str] = "task ended"
    task: int
    seconds: float


@final
@dataclass(frozen=True, slots=True)
class Evaluated:
    """The accuracies after a task."""

    kind: ClassVar[str] = "evaluated"
    task: int
    part: Literal["test", "validation"]
    accuracies: tuple[float | None, ...]
    average: float
    """The mean over the tasks seen."""
    lost: tuple[float | None, ...] = ()
    """How far the answers to each task are from those at its end, in nats."""


@final
@dataclass(frozen=True, slots=True)
class RunEnded:
    """The run ended, in whatever way; always the last event."""

    kind: ClassVar[str] = "run ended"
    outcome: Ending
    seconds: float
    task: int | None = None
    """Of a run that diverged: the task in which that was noticed."""
    step: int | None = None
    """How many steps had been taken by then."""

    @property
    def words(self) -> str:
        """How it ended, and where if it diverged."""
        return (
            self.outcome if self.step is None else f"{self.outcome} in task {(self.task or 0) + 1} by step {self.step}"
        )


Event = RunStarted | TaskStarted | EpochStarted | StepDone | TaskEnded | Evaluated | RunEnded


class Observer(Protocol):
    """Anything that can be told what happens."""

    def observe(self, event: Event) -> None:
        """Take note of an event; pass over those that do not matter."""


class Sampling:
    """An observer that looks at one step in `every`."""

    def __init__(self, every: int) -> None:
        if every < 1:
            raise ValueError(f"Expected to look at one step in 1 or more, got every={every}. Give a positive number.")
        self.every = every


@final
class Audience:
    """The observers of a run. What they draw at random does not change the run.

    Attributes:
        every: one step in so many is looked at by anybody; 0 without observers.
    """

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._observers = tuple(observers)
        self.every = gcd(*(each.every if isinstance(each, Sampling) else 1 for each in self._observers))

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
