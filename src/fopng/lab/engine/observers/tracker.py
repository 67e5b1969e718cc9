"""What every tracker is told about a run, and when; the trackers themselves know only how to write."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Self, final

from fopng.lab.engine.observers.events import Evaluated, Event, RunEnded, RunStarted, StepDone, present_device
from fopng.lab.engine.randomness import random_states_kept


@final
@dataclass(frozen=True, kw_only=True)
class Tracked:
    """What a tracker must know about a run to find its place."""

    runs: Path
    """The folder of all runs."""
    run: Path
    """The folder of this one."""
    key: str
    """What names it."""
    every: int
    """One step in so many is measured."""


class Tracker(ABC):
    """Passes on the configuration, what one step in `every` measured, the accuracies, and how the run ended.

    Args:
        every: one step in so many is measured.
    """

    package: ClassVar[str]
    """The library that it writes with, and the extra of this package that installs it."""

    def __init__(self, *, every: int) -> None:
        if every < 1:
            raise ValueError(f"Expected to track one step in 1 or more, got every={every}. Give a positive number.")
        self.require_package()
        self._every, self._step = every, 0

    @classmethod
    @abstractmethod
    def of(cls, tracked: Tracked) -> Self:
        """The tracker of one run among others."""

    @classmethod
    def require_package(cls) -> None:
        """Raise unless the library is installed."""
        if find_spec(cls.package) is None:
            raise ModuleNotFoundError(
                f"Expected the package {cls.package}, got none. Install it with: pip install 'fopng[{cls.package}]'"
            )

    @final
    def observe(self, event: Event) -> None:
        """Pass an event on; random numbers that the library draws are not missing in the run."""
        if isinstance(event, StepDone):
            self._step = event.step
            if event.step % self._every:
                return
        with random_states_kept(present_device()):
            self._pass_on(event)

    def _pass_on(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self._step = event.done
            self.start(event)
        elif isinstance(event, StepDone):
            self.write({f"step/{name}": value for name, value in event.measure().items()}, self._step)
        elif isinstance(event, Evaluated):
            self.write(dict(_scalars(event)), self._step)
        elif isinstance(event, RunEnded):
            self.end(event)

    @abstractmethod
    def start(self, event: RunStarted) -> None:
        """Open what is written to: of a new run, or of one that goes on."""

    @abstractmethod
    def write(self, scalars: Mapping[str, float], step: int) -> None:
        """Write numbers by their names, as they are after so many steps."""

    @abstractmethod
    def end(self, event: RunEnded) -> None:
        """Write the rest, and close."""


def _scalars(event: Evaluated) -> Iterator[tuple[str, float]]:
    yield f"{event.part}/average", event.average
    for task, accuracy in enumerate(event.accuracies, start=1):
        if accuracy is not None:
            yield f"{event.part}/task {task}", accuracy


def flat(facts: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """A nested configuration with one name for each value.

    >>> flat({"seed": 0, "settings": {"lr": 0.1}})
    {'seed': 0, 'settings.lr': 0.1}
    """
    found: dict[str, object] = {}
    for name, value in facts.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found
