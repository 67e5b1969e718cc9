"""Do the runs of a command: its signals, warnings and progress."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from rich.console import Console

from fopng.cli.stopping import Stopped
from fopng.cli.views import ClusterView, CountView, RunView
from fopng.lab.engine import Interrupted
from fopng.lab.engine.observers import require_trackers
from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.result import RunResult
from fopng.lab.schedule.runner import Runner
from fopng.lab.schedule.signals import StopSignals
from fopng.lab.schedule.view import View
from fopng.lab.storage.locks import HeldError

GO_ON = "The same command goes on from there."


def do_runs(
    configs: Sequence[RunConfig], runner: Runner, experiment: str = "comparison", *, again: bool = False
) -> list[RunResult]:
    """The results of these runs, with progress on stderr; `Stopped` when a signal came, after everything was saved."""
    require_trackers(runner.trackers)
    console = Console(stderr=True, highlight=False, emoji=False)
    tell = _teller(console)
    with StopSignals() as signals, _warnings_told(tell):
        told = replace(runner, view=_view(runner, console), notice=tell, should_stop=signals)
        try:
            return told.do(configs, experiment, again=again)
        except Interrupted as stop:
            assert signals.number is not None
            raise Stopped(f"{stop} {GO_ON}", signals.number) from stop
        except (HeldError, KeyboardInterrupt) as error:
            if signals.number is None:
                raise
            raise Stopped(f"Stopped. {GO_ON}", signals.number) from error


def _view(runner: Runner, console: Console) -> View:
    if runner.engine == "ray":
        return ClusterView(console)
    return CountView(console) if runner.jobs > 1 else RunView(console)


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
