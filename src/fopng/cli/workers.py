"""Several processes that do runs at the same time, each with its share of the machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
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

POLL_SECONDS = 0.2


def do_with_workers(
    configs: Sequence[RunConfig], means: Means, console: Console, signals: StopSignals
) -> list[RunResult]:
    """The results of these runs; the runs are shared out among as many processes as were asked for."""
    from fopng.train import Interrupted

    # Not forked: a forked child cannot use torch's threads, nor a CUDA device.
    fresh = multiprocessing.get_context("spawn")
    workers = ProcessPoolExecutor(means.jobs, fresh, initializer=_begin, initargs=(os.getpid(),))
    with workers, RunsProgress(console, len(configs)) as progress:
        futures = {config.key: workers.submit(_do, config, means) for config in configs}
        waiting = set(futures.values())
        try:
            while waiting and not signals():
                ended, waiting = wait(waiting, POLL_SECONDS, FIRST_COMPLETED)
                for future in ended:
                    progress.advance(future.result())
        finally:
            _stop(waiting)
    if waiting:
        raise Interrupted(f"Stopped with {len(futures) - len(waiting)} of {len(futures)} runs done.")
    return [futures[config.key].result() for config in configs]


def _stop(waiting: Iterable[Future[RunResult]]) -> None:
    """Begin no more runs, and have those that are under way saved: leaving the pool waits for that."""
    under_way = [future for future in waiting if not future.cancel()]
    if under_way:
        for child in multiprocessing.active_children():
            child.terminate()


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
    # Ctrl-C reaches every process of a terminal; only the parent heeds it, and tells the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _worker = _Worker(StopSignals((signal.SIGTERM,), quiet=True).__enter__(), parent)


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
