"""Several processes that do runs at the same time, each with its share of the machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from rich.console import Console

from fopng.cli.machine import threads_used
from fopng.cli.options import Engine
from fopng.cli.progress import RunsProgress
from fopng.cli.stopping import StopSignals

if TYPE_CHECKING:
    from fopng.cli.work import Means
    from fopng.lab.runs.config import RunConfig
    from fopng.lab.runs.result import RunResult

POLL_SECONDS = 0.2


def do_with_workers(
    configs: Sequence[RunConfig], means: Means, console: Console, signals: StopSignals
) -> list[RunResult]:
    """The results of these runs; the runs are shared out among as many processes as were asked for."""
    from fopng.lab.engine import Interrupted

    # Not forked: a forked child cannot use torch's threads, nor a CUDA device.
    fresh = multiprocessing.get_context("spawn")
    workers = ProcessPoolExecutor(means.jobs, fresh, initializer=_begin, initargs=(os.getpid(),))
    with workers, RunsProgress(console, len(configs)) as progress:
        futures = [workers.submit(_do, unit, means) for unit in _units(configs, means)]
        waiting = set(futures)
        try:
            while waiting and not signals():
                ended, waiting = wait(waiting, POLL_SECONDS, FIRST_COMPLETED)
                for future in ended:
                    for result in future.result():
                        progress.advance(result)
        finally:
            _stop(waiting)
    done = {result.config.key: result for future in futures if future not in waiting for result in future.result()}
    if waiting:
        raise Interrupted(f"Stopped with {len(done)} of {len(configs)} runs done.")
    return [done[config.key] for config in configs if config.key in done]


def _units(configs: Sequence[RunConfig], means: Means) -> list[list[RunConfig]]:
    """What a worker does at a time: one run, where several processes fill the machine; or runs side by side."""
    from fopng.lab.runs.groups import alike, cut

    if means.engine is not Engine.REPLICAS:
        return [[config] for config in configs]
    return [piece for group in alike(configs) for piece in cut(group, -(-len(group) // means.jobs))]


def _stop(waiting: Iterable[Future[list[RunResult]]]) -> None:
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


def _say(message: str) -> None:
    print(f"fopng: {message}", file=sys.stderr, flush=True)  # noqa: T201


def _do(configs: Sequence[RunConfig], means: Means) -> list[RunResult]:
    from fopng.cli.work import workshop

    assert _worker is not None
    shop = workshop(means, _say, _worker.should_stop)
    with threads_used(means.threads or 1, configs[0].model):
        return shop.do(configs, again=means.again)
