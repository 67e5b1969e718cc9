"""Doing the runs of a command: signals, warnings, progress, one process or several."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast, final

from rich.console import Console

from fopng.cli.machine import find_device, threads_used
from fopng.cli.options import Device, Engine
from fopng.cli.stopping import Stopped, StopSignals

if TYPE_CHECKING:
    from fopng.lab.runs.config import RunConfig
    from fopng.lab.runs.groups import EngineName
    from fopng.lab.runs.result import RunResult
    from fopng.lab.runs.runner import Workshop


class FailedRunsError(RuntimeError):
    """Some runs failed; the others have their results."""


GO_ON = "The same command goes on from there."


@final
@dataclass(frozen=True, kw_only=True)
class Means:
    """How the runs of a command are done."""

    out: Path
    data_dir: Path | None = None
    device: Device = Device.AUTO
    threads: int | None = None
    jobs: int = 1
    again: bool = False
    trackers: tuple[str, ...] = ()
    engine: Engine = Engine.AUTO
    address: str | None = None
    """Of the cluster, for the engine that has one."""
    keep_going: bool = False
    """Whether a run that fails is told and left out, instead of ending the command."""

    @property
    def engine_here(self) -> EngineName:
        """How one machine does its runs; a worker of a cluster in the way that is faster."""
        return "auto" if self.engine is Engine.RAY else cast("EngineName", self.engine.value)

    def __post_init__(self) -> None:
        if self.address is not None and self.engine is not Engine.RAY:
            raise ValueError(f"Expected --engine ray with --address, got {self.engine.value}. Add it.")
        if self.jobs > 1 and self.engine is Engine.RAY:
            raise ValueError(f"Expected no --jobs with --engine ray, got {self.jobs}. Ray starts as many as fit.")


def do_runs(configs: Sequence[RunConfig], means: Means) -> list[RunResult]:
    """The results of these runs, with progress on stderr; `Stopped` when a signal came, after everything was saved."""
    from fopng.lab.engine import Interrupted
    from fopng.lab.engine.observers import require_trackers
    from fopng.lab.storage.locks import HeldError

    require_trackers(means.trackers)
    console = Console(stderr=True, highlight=False, emoji=False)
    with StopSignals() as signals, _warnings_told(_teller(console)):
        try:
            if means.engine is Engine.RAY:
                from fopng.cli.cluster import do_on_cluster

                return do_on_cluster(configs, means, console, _teller(console), signals)
            if means.jobs > 1 and means.engine is not Engine.SINGLE and find_device(means.device).type == "cuda":
                return _do_in_lanes(configs, means, console, signals)
            if means.jobs > 1:
                from fopng.cli.workers import do_with_workers

                return do_with_workers(configs, means, console, signals)
            return _do_here(configs, means, console, signals)
        except Interrupted as stop:
            assert signals.number is not None
            raise Stopped(f"{stop} {GO_ON}", signals.number) from stop
        except (HeldError, KeyboardInterrupt) as error:
            if signals.number is None:
                raise
            raise Stopped(f"Stopped. {GO_ON}", signals.number) from error


def raise_for(failed: Sequence[RunConfig]) -> None:
    """Raise when runs failed, after everything else was done; why they did was told when it happened."""
    if failed:
        names = ", ".join(sorted({f"{config.benchmark} {config.method}" for config in failed}))
        raise FailedRunsError(f"{len(failed)} runs failed ({names}). The same command tries them again.")


def workshop(means: Means, notice: Callable[[str], None], should_stop: Callable[[], bool]) -> Workshop:
    """Where and how the runs of a command are done."""
    from fopng.lab.runs.runner import Workshop
    from fopng.lab.runs.store import Store

    return Workshop(
        store=Store(means.out),
        device=find_device(means.device),
        data_dir=means.data_dir,
        trackers=means.trackers,
        notice=notice,
        should_stop=should_stop,
        engine=means.engine_here,
        keep_going=means.keep_going,
    )


def _do_here(configs: Sequence[RunConfig], means: Means, console: Console, signals: StopSignals) -> list[RunResult]:
    from fopng.lab.engine.observers import progress

    shop = workshop(means, _teller(console), signals)
    runs = len(configs) if means.again else len(shop.unfinished(configs))
    watched = shop.watched_by(progress(console, runs=runs))
    with threads_used(means.threads, configs[0].model):
        return watched.do(configs, again=means.again)


def _do_in_lanes(configs: Sequence[RunConfig], means: Means, console: Console, signals: StopSignals) -> list[RunResult]:
    """In this process: several processes would take turns on a GPU, streams share it."""
    from fopng.cli.progress import RunsProgress

    shop = workshop(means, _teller(console), signals)
    runs = len(configs) if means.again else len(shop.unfinished(configs))
    with RunsProgress(console, runs) as progress, threads_used(means.threads, configs[0].model):
        return dataclasses.replace(shop, lanes=means.jobs, ended=progress.advance).do(configs, again=means.again)


def _teller(console: Console) -> Callable[[str], None]:
    """Say each thing once."""
    said = set()

    def tell(message: str) -> None:
        if message not in said:
            said.add(message)
            console.print(f"fopng: {message}", markup=False, soft_wrap=True)

    return tell


@contextmanager
def _warnings_told(tell: Callable[[str], None]) -> Iterator[None]:
    """Warnings as sentences, without the place in the source."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = lambda message, *place, **more: tell(str(message))
        yield
