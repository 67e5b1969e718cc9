"""Do the runs of a command: its signals, warnings and progress."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from inspect import signature
from typing import Any

from rich.console import Console

from fopng.cli.run_options import RunOptions, WorkOptions, parse_seeds
from fopng.cli.stopping import Stopped
from fopng.cli.views import ClusterView, CountView, RunView
from fopng.lab.engine import Interrupted
from fopng.lab.engine.observers import require_trackers
from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.request import configurations
from fopng.lab.runs.result import RunResult
from fopng.lab.runs.store import Store
from fopng.lab.schedule.machine import find_device
from fopng.lab.schedule.runner import Runner
from fopng.lab.schedule.signals import StopSignals
from fopng.lab.schedule.view import View
from fopng.lab.storage.locks import HeldError

GO_ON = "The same command goes on from there."


def runner_of(options: WorkOptions, *, keep_going: bool = False) -> Runner:
    """What does the runs as the options say; `keep_going` leaves out those that fail."""
    on_ray = options.engine == "ray"
    if on_ray and options.device == "mps":
        raise ValueError("Expected --device auto, cpu or cuda with --engine ray, got mps.")
    return Runner(
        store=Store(options.out),
        data_dir=options.data_dir,
        engine=options.engine,
        address=options.address,
        device=find_device("cpu" if on_ray else options.device),
        gpus=None if options.device == "auto" else options.device == "cuda",
        threads=options.threads,
        jobs=options.jobs,
        trackers=options.track or (),
        keep_going=keep_going,
    )


def configurations_of(options: RunOptions, benchmark: str, methods: Sequence[str], **more: Any) -> list[RunConfig]:
    """The runs that the options ask for; `more` are further arguments of `configurations`."""
    known = signature(configurations).parameters
    asked = {name: value for name, value in vars(options).items() if name in known}
    return configurations(
        **{**asked, "benchmark": benchmark, "methods": methods, "seeds": parse_seeds(options.seeds), **more}
    )


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
            results = told.do(configs, experiment, again=again)
            # those of this experiment alone, whatever others ask for the same runs
            return [replace(result, experiments=(experiment,)) for result in results]
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
