"""Do runs in several processes of this machine, each with its share of the cores."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from typing import final

from fopng.lab.engine import Interrupted
from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.result import RunResult
from fopng.lab.schedule.errors import FailedRunsError
from fopng.lab.schedule.groups import alike, cut
from fopng.lab.schedule.runner import Runner, Work, never
from fopng.lab.schedule.signals import StopSignals
from fopng.lab.schedule.view import View

POLL_SECONDS = 0.2

GRACE_SECONDS = 20.0
"""How long a worker may go on saving after its parent is gone."""


def do_in_processes(work: Work) -> None:
    """Do the missing runs in as many processes as `jobs` says."""
    # Not forked: a forked child cannot use torch's threads, nor a CUDA device.
    fresh = multiprocessing.get_context("spawn")
    plain = replace(work.runner, view=View(), observers=(), notice=_say, should_stop=never)
    runner = replace(plain, jobs=1, threads=work.runner.threads or 1)
    with ProcessPoolExecutor(work.runner.jobs, fresh, initializer=_begin) as workers:
        waiting = {workers.submit(_do, runner, unit, work.experiment, work.again) for unit in _units(work)}
        try:
            while waiting and not work.runner.should_stop():
                ended, waiting = wait(waiting, POLL_SECONDS, FIRST_COMPLETED)
                for result in (result for future in ended for result in future.result()):
                    work.take(result)
        except BrokenProcessPool as error:
            raise FailedRunsError(
                "Expected worker processes to go on, got one that was killed, perhaps for its memory. "
                "Lower --jobs; the same command goes on from what was saved."
            ) from error
        finally:
            _stop(waiting)
    for result in (result for future in waiting if _has_results(future) for result in future.result()):
        work.take(result)
    if work.missing and work.runner.should_stop():
        raise Interrupted(f"Stopped with {len(work.done)} of {len(work.configs)} runs done.")


def _units(work: Work) -> list[list[RunConfig]]:
    """What a worker does at a time: one run; or, where that was asked for, a group."""
    if work.runner.engine != "replicas":
        return [[config] for config in work.missing]
    return [piece for group in alike(work.missing) for piece in cut(group, -(-len(group) // work.runner.jobs))]


def _stop(waiting: Iterable[Future[list[RunResult]]]) -> None:
    """Begin no more runs, and have those under way saved; leaving the pool waits for that."""
    if [future for future in waiting if not future.cancel()]:
        for child in multiprocessing.active_children():
            child.terminate()


def _has_results(future: Future[list[RunResult]]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


@final
@dataclass
class _Worker:
    """The state of a worker process: told to stop by SIGTERM, or by the end of its parent."""

    signals: StopSignals = field(default_factory=lambda: StopSignals((signal.SIGTERM,), quiet=True))
    orphaned: bool = False
    idle: threading.Event = field(default_factory=threading.Event)

    def should_stop(self) -> bool:
        """Whether to save and stop."""
        return self.orphaned or self.signals()

    def end_with_parent(self) -> None:
        """Wait for the end of the parent; let the work under way be saved, and end this process."""
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        self.orphaned = True
        self.idle.wait(GRACE_SECONDS)
        os._exit(1)


_worker = _Worker()


def _begin() -> None:
    # Ctrl-C reaches every process of a terminal; only the parent heeds it, and tells the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _worker.signals.__enter__()
    _worker.idle.set()
    # Without this thread a worker would wait for ever for work from a parent that was killed.
    threading.Thread(target=_worker.end_with_parent, daemon=True).start()


def _say(message: str) -> None:
    print(f"fopng: {message}", file=sys.stderr, flush=True)  # noqa: T201


def _do(runner: Runner, configs: Sequence[RunConfig], experiment: str, again: bool) -> list[RunResult]:
    _worker.idle.clear()
    try:
        return replace(runner, should_stop=_worker.should_stop).do(configs, experiment, again=again)
    finally:
        _worker.idle.set()
