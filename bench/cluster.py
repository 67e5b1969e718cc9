"""What a cluster costs: the `ray` and `dispatch` of bench/scale.py.

`ray`: waves of the paper's MLP on Split-MNIST (split-digits where MNIST is not there), each made to take about so many seconds by
the number of its epochs, are done by this process, and by a Ray of one worker on the same machine, in turn. `overhead a wave` is
the ratio of the two times; `outside` is exact where a busy machine makes that one noisy: the seconds that a wave takes beyond the
time between the first and the last line of its log. The start of Ray and of a worker are given apart.

`dispatch`: a cluster that answers each wave at once with made-up results, so that what is left is the dispatcher: claims, parcels,
results written and flushed.
"""

import dataclasses
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from fopng.lab.cluster import Dispatcher, connect
from fopng.lab.cluster.errands import Errand, Letter, Needs, Report
from fopng.lab.cluster.parcels import Parcel
from fopng.lab.data import load
from fopng.lab.data.errors import DataError
from fopng.lab.engine.observers import read_log
from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.environment import describe_environment
from fopng.lab.runs.request import configurations
from fopng.lab.runs.result import RunResult, result_text
from fopng.lab.runs.runner import Workshop
from fopng.lab.runs.store import Store

RESULTS = Path(__file__).parent / "results"
SEEDS = 2
"""Runs of a wave."""


def waves_of(seconds: float, waves: int) -> list[list[RunConfig]]:
    """Waves of some runs side by side that take about so long, each of seeds of its own."""
    try:
        load(dataset := "mnist")
    except DataError:
        dataset = "digits"
    configs = configurations(benchmark=f"split-{dataset}", methods=["fopng"], seeds=range(SEEDS * waves), epochs=1)
    once = _timed_locally([configs[:SEEDS]])[0]
    epochs = max(1, round(seconds / once))
    configs = [dataclasses.replace(config, epochs=epochs) for config in configs]
    return [configs[first : first + SEEDS] for first in range(0, len(configs), SEEDS)]


def _timed_locally(waves: Sequence[Sequence[RunConfig]]) -> list[float]:
    found = []
    for wave in waves:
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            Workshop(store=Store(Path(folder)), device=torch.device("cpu"), engine="replicas").do(wave)
            found.append(time.perf_counter() - start)
    return found


def on_ray(seconds: float, waves: int) -> dict[str, object]:
    """Seconds a wave with and without Ray, wave by wave in turn, and how long Ray took to start."""
    formed = waves_of(seconds, waves)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        cluster = connect(None, [config for wave in formed for config in wave], out=Path(folder))
        started = time.perf_counter() - start
        _timed_on(cluster, Path(folder) / "first", formed[0])  # a worker starts and imports torch, once
        first = time.perf_counter() - start - started
        pairs = []
        for number, wave in enumerate(formed):
            [alone] = _timed_locally([wave])
            place = Path(folder) / str(number)
            taken = _timed_on(cluster, place, wave)
            pairs.append({"local": alone, "ray": taken, "outside": taken - _logged_seconds(place)})
    overhead = statistics.median(pair["ray"] / pair["local"] for pair in pairs) - 1
    outside = statistics.median(pair["outside"] / pair["ray"] for pair in pairs)
    return {
        "overhead a wave": overhead,
        "outside, as a share of a wave": outside,
        "seconds": {"start of Ray": started, "first wave, with the start of a worker": first, "waves": pairs},
        "epochs": formed[0][0].epochs,
        "benchmark": formed[0][0].benchmark,
    }


def _logged_seconds(folder: Path) -> float:
    """The time between the first and the last line of a wave's log."""
    times = [line["time"] for line in read_log(next(folder.rglob("log.jsonl")))]
    return float(times[-1] - times[0])


def _timed_on(cluster: object, folder: Path, wave: Sequence[RunConfig]) -> float:
    start = time.perf_counter()
    shop = Workshop(store=Store(folder), device=torch.device("cpu"), engine="replicas")
    dispatcher = Dispatcher(shop, _OneAtATime(cluster))
    assert len(dispatcher.do(wave)) == len(wave)
    return time.perf_counter() - start


class _OneAtATime:
    """The cluster, with room for one wave: what is compared is the same wave."""

    def __init__(self, cluster: object) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> object:
        return getattr(self._cluster, name)

    def room(self, needs: object) -> int:
        return 1


class _AtOnce:
    """A cluster that answers with a result for each run as soon as it is asked."""

    def __init__(self) -> None:
        self._waiting: list[Errand] = []

    def submit(self, errand: Errand, needs: Needs) -> None:
        self._waiting.append(errand)

    def ended(self, seconds: float) -> dict[str, Report]:
        ended, self._waiting = self._waiting, []
        return {errand.name: Report(Letter(errand.name, 1.0, _results(errand.configs))) for errand in ended}

    def letters(self) -> list[Letter]:
        return [Letter(errand.name, 0.5) for errand in self._waiting]

    def room(self, needs: Needs) -> int:
        return 64

    def largest(self) -> Needs:
        return Needs(64, 8, 2**38)


def _results(configs: Sequence[RunConfig]) -> Parcel:
    rows = tuple(tuple(0.9 for _ in range(5)) for _ in range(5))
    store = Store(Path())
    return Parcel(
        {
            f"{store.folder(c).path.as_posix()}/result.json": result_text(RunResult(config=c, accuracy=rows)).encode()
            for c in configs
        }
    )


def dispatch(runs: int) -> dict[str, object]:
    """Seconds of the dispatcher for so many runs."""
    [config] = configurations(benchmark="split-digits", methods=["fopng"], seeds=[0])
    configs = [dataclasses.replace(config, seed=seed) for seed in range(runs)]
    with tempfile.TemporaryDirectory() as folder:
        shop = Workshop(store=Store(Path(folder)), device=torch.device("cpu"))
        start, used = time.perf_counter(), time.process_time()
        found = Dispatcher(shop, _AtOnce()).do(configs)
        seconds, processor = time.perf_counter() - start, time.process_time() - used
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    assert len(found) == runs
    return {"runs": runs, "seconds": seconds, "of them on the processor": processor, "bytes a run": size / runs}


def report(what: str, words: str, found: dict[str, object], out: Path = RESULTS) -> None:
    """Print what was measured and write it as JSON."""
    environment = describe_environment(torch.device("cpu"))
    document = {"command": f"python bench/scale.py {words}", "environment": environment, **found}
    out.mkdir(parents=True, exist_ok=True)
    (out / f"scale-{what}.json").write_text(json.dumps(document, indent=2) + "\n")
    print(json.dumps(found, indent=2))
