"""Do the runs, each once: what has a result is left alone, and what is interrupted is done again."""

from __future__ import annotations

import multiprocessing
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import torch

from fopng.lab.engine.observers.progress import duration
from fopng.lab.runs.environment import describe_environment
from fopng.optim.tolerance import ToleranceExceeded
from reproduction.tolerance.cells import Places, beginnings, filled_like, ready
from reproduction.tolerance.contenders import CONTENDERS
from reproduction.tolerance.images import run_images
from reproduction.tolerance.languages import first_model, run_texts
from reproduction.tolerance.portions import texts
from reproduction.tolerance.records import Cell, Record, load_record, missing
from reproduction.tolerance.streams import STREAMS, ImageStream, TextStream

Say = Callable[[str], None]


def do_all(wanted: Sequence[Cell], places: Places, *, jobs: int, say: Say) -> None:
    """Do those that have no result yet, each on one thread.

    Raises:
        RuntimeError: some failed; all others are done.
    """
    left, failed, begun = missing(wanted, places.out), list[str](), time.monotonic()
    say(f"{len(left)} of {len(wanted)} runs to do. What is interrupted goes on with the same command.")
    with _processes(jobs) as pool:
        waiting: dict[Future[Any], str] = {
            pool.submit(learn_first, seed, places): f"first texts, seed {seed}" for seed in beginnings(left, places)
        }
        while True:
            now = [cell for cell in left if ready(cell, places)]
            left = [cell for cell in left if cell not in now]
            waiting.update((pool.submit(do, cell, places), _words(cell)) for cell in now)
            if not waiting:
                break
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                line = _told(waiting.pop(future), future, failed)
                say(f"{line} ({duration(time.monotonic() - begun)} so far, {len(waiting) + len(left)} left)")
    if failed or left:
        raise RuntimeError("\n".join([*failed, *(f"{_words(cell)}: a run that it needs failed." for cell in left)]))


def do(cell: Cell, places: Places) -> Record:
    """Do a run and save its result."""
    began, worked, device = time.monotonic(), time.process_time(), torch.device(places.device)
    stream, contender = STREAMS[cell.stream], CONTENDERS[cell.contender]
    settings = {"lr": stream.lr, **contender.settings, **_replayed(cell, places)}
    if isinstance(stream, TextStream):
        corpora = texts(places.data_dir)
        facts: dict[str, Any] = {corpus.name: corpus.facts for corpus in corpora}
        measured = run_texts(stream, contender.method, settings, cell.seed, corpora, device, places.cache)
    else:
        facts = stream.facts(stream.data(places.data_dir))
        measured = run_images(stream, contender.method, settings, cell.seed, places.data_dir, device)
    times = {"seconds": time.monotonic() - began, "cpu_seconds": time.process_time() - worked}
    environment = {**describe_environment(device), **times}
    record = Record(cell=cell, measured=measured, settings=settings, data=facts, environment=environment)
    record.save(places.out)
    return record


def learn_first(seed: int, places: Places) -> None:
    """Train the model of the first texts, from which every method starts."""
    for stream in (stream for stream in STREAMS.values() if isinstance(stream, TextStream)):
        first_model(stream, seed, texts(places.data_dir)[0], torch.device(places.device), places.cache)


def _replayed(cell: Cell, places: Places) -> Mapping[str, Any]:
    """As many samples as fit into what another method keeps, a byte a pixel or a character, and as many a step as are new."""
    like = filled_like(cell)
    if like is None:
        return {}
    stream = STREAMS[cell.stream]
    kept = load_record(like.path(places.out)).measured.kept_bytes
    return {"capacity": max(1, kept // sample_bytes(stream, places)), "replay_samples": stream.batch_size}


def sample_bytes(stream: ImageStream | TextStream, places: Places) -> int:
    """What a sample takes with its answer, as a file would keep it."""
    if isinstance(stream, TextStream):
        return stream.length + 1
    return int(stream.data(places.data_dir).train.inputs[0].size) + 1


@contextmanager
def _processes(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that end when this one is interrupted; what they were at is lost."""
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=_begin)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            child.terminate()
        raise
    pool.shutdown()


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # what was measured is in the results
    warnings.simplefilter("ignore", ToleranceExceeded)
    torch.set_num_threads(1)


def _told(name: str, future: Future[Any], failed: list[str]) -> str:
    error = future.exception()
    if error is None:
        return f"{name}: done"
    failed.append(f"{name}: {type(error).__name__}: {error}")
    return failed[-1]


def _words(cell: Cell) -> str:
    return f"{cell.stream}, {CONTENDERS[cell.contender].title}, seed {cell.seed}"
