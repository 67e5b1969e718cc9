"""What is said between the dispatcher, which has the store, and the workers, which have none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, final

from fopng.lab.cluster.parcels import Parcel
from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.groups import EngineName

BROUGHT_HOME = ("tensorboard",)
"""Trackers whose files only ever grow, so that what is added to them can be sent."""


@final
@dataclass(frozen=True)
class Needs:
    """What a wave takes of the machine that does it."""

    cpus: int
    gpus: int
    memory: int
    """Bytes of its main memory."""


@final
@dataclass(frozen=True, kw_only=True)
class Errand:
    """A wave that somebody is to do, once."""

    name: str
    """Another one for each time that the wave is sent out."""
    configs: Sequence[RunConfig]
    parcel: Parcel
    """What it goes on from."""
    engine: EngineName
    device: Literal["cpu", "cuda"]
    threads: int
    trackers: tuple[str, ...]
    """Those that write into a run's own folder, from where it comes home: `BROUGHT_HOME`."""
    save_seconds: float


@final
@dataclass(frozen=True)
class Letter:
    """How an errand stands, told while it goes on."""

    errand: str
    fraction: float = 0.0
    """The share of its steps that is done."""
    parcel: Parcel = field(default_factory=Parcel)
    """What was saved since the last letter."""
    notices: tuple[str, ...] = ()

    def after(self, earlier: Letter) -> Letter:
        """Both in one."""
        return Letter(self.errand, self.fraction, self.parcel.after(earlier.parcel), (*earlier.notices, *self.notices))


@final
@dataclass(frozen=True)
class Failure:
    """What a wave raised."""

    message: str
    traceback: str
    ends_everything: bool
    """Whether every other wave would fail in the same way."""


@final
@dataclass(frozen=True)
class Report:
    """How an errand ended: with all results, or stopped, or failed."""

    last: Letter
    """What it left, results among it."""
    stopped: bool = False
    failure: Failure | None = None


@final
@dataclass(frozen=True)
class Lost:
    """An errand whose worker is gone: nothing is known but what its letters said."""

    message: str


Ending = Report | Lost


class Cluster(Protocol):
    """Whoever does errands."""

    def submit(self, errand: Errand, needs: Needs) -> None:
        """Have it done as soon as there is room."""

    def ended(self, seconds: float) -> Mapping[str, Ending]:
        """The errands that have ended since, by name, after waiting for one for so long at the most."""

    def letters(self) -> Sequence[Letter]:
        """What the workers said since, one letter an errand."""

    def stop(self) -> None:
        """Begin no more errands, and have those under way saved and ended."""

    def room(self, needs: Needs) -> int:
        """How many such waves there is room for at a time, busy or not."""

    def largest(self) -> Needs:
        """What the largest machine has of everything."""
