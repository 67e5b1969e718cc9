"""Several processes that do runs at the same time, each with its share of the machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from rich.console import Console

from fopng.cli.machine import find_device, use_threads
from fopng.cli.progress import RunsProgress
from fopng.cli.stopping import StopSignals

if TYPE_CHECKING:
    from fopng.cli.work import Means
    from fopng.config import RunConfig
    from fopng.result import RunResult


def do_with_workers(
    configs: Sequence[RunConfig], means: Means, console: Console, signals: StopSignals
) -> list[RunResult]:
    """The results of these runs; the runs are shared out among as many processes as were asked for."""
    # Not forked: a forked child cannot use torch's threads, nor a CUDA device.
    fresh = multiprocessing.get_context("spawn")
    workers = ProcessPoolExecutor(means.jobs, fresh, initializer=_begin, initargs=(os.getpid(),))
    with workers, RunsProgress(console, len(configs)) as progress:
        futures = {workers.submit(_do, config, means): config.key for config in configs}
        try:
            done = {}
            for future in as_completed(futures):
                done[futures[future]] = future.result()
                progress.advance(future.result())
            return [done[config.key] for config in configs]
        except BaseException:
            _stop(list(futures), signals)
            raise


def _stop(futures: list[Future[RunResult]], signals: StopSignals) -> None:
    """Begin no more runs, and have those that are under way saved."""
    for future in futures:
        future.cancel()
    for child in multiprocessing.active_children():
        if child.pid is not None:
            os.kill(child.pid, signals.number or signal.SIGTERM)


@final
@dataclass
class _Worker:
    """The state of a worker process."""

    signals: StopSignals
    parent: int

    def should_stop(self) -> bool:
        """When it was told to, or when nobody is left to tell."""
        return self.signals() or os.getppid() != self.parent


_worker: _Worker | None = None


def _begin(parent: int) -> None:
    global _worker
    _worker = _Worker(StopSignals(quiet=True).__enter__(), parent)


def _do(config: RunConfig, means: Means) -> RunResult:
    from fopng.runs import Workshop
    from fopng.store import Store

    assert _worker is not None
    use_threads(means.threads or 1, config.model)
    workshop = Workshop(
        store=Store(means.out),
        device=find_device(means.device),
        data_dir=means.data_dir,
        tensorboard=means.tensorboard,
        should_stop=_worker.should_stop,
    )
    [result] = workshop.do([config], again=means.again)
    return result
