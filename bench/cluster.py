"""What a cluster costs: the `ray` of bench/scale.py.

`ray`: waves of the paper's MLP on Split-MNIST (split-digits where MNIST is not there), each made to take about so many seconds by
the number of its epochs, are done by this process, and by a Ray of one worker on the same machine, in turn. `overhead a wave` is
the ratio of the two times; `outside` is exact where a busy machine makes that one noisy: the seconds that a wave takes beyond the
time between the first and the last line of its log. The start of Ray and of a worker are given apart.
"""

import dataclasses
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from fopng.lab.choices import EngineName
from fopng.lab.data import load
from fopng.lab.data.errors import DataError
from fopng.lab.engine.observers import read_log
from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.environment import describe_environment
from fopng.lab.runs.request import configurations
from fopng.lab.runs.store import Store
from fopng.lab.schedule.ray_cluster import connect
from fopng.lab.schedule.runner import Runner

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
    with tempfile.TemporaryDirectory() as folder:
        once = _timed(Path(folder), configs[:SEEDS], "replicas")
    epochs = max(1, round(seconds / once))
    configs = [dataclasses.replace(config, epochs=epochs) for config in configs]
    return [configs[first : first + SEEDS] for first in range(0, len(configs), SEEDS)]


def on_ray(seconds: float, waves: int) -> dict[str, object]:
    """Seconds a wave with and without Ray, wave by wave in turn, and how long Ray took to start."""
    formed = waves_of(seconds, waves)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        connect(None)
        started = time.perf_counter() - start
        _timed(Path(folder) / "first", formed[0], "ray")  # a worker starts and imports torch, once
        first = time.perf_counter() - start - started
        pairs = []
        for number, wave in enumerate(formed):
            alone = _timed(Path(folder) / f"{number} alone", wave, "replicas")
            place = Path(folder) / str(number)
            taken = _timed(place, wave, "ray")
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
    """The time between the first and the last line of a group's log."""
    times = [line["time"] for line in read_log(next(folder.rglob("log.jsonl")))]
    return float(times[-1] - times[0])


def _timed(folder: Path, group: Sequence[RunConfig], engine: EngineName) -> float:
    start = time.perf_counter()
    results = Runner(store=Store(folder), device=torch.device("cpu"), engine=engine).do(group)
    assert len(results) == len(group)
    return time.perf_counter() - start


def report(what: str, words: str, found: dict[str, object], out: Path = RESULTS) -> None:
    """Print what was measured and write it as JSON."""
    environment = describe_environment(torch.device("cpu"))
    document = {"command": f"python bench/scale.py {words}", "environment": environment, **found}
    out.mkdir(parents=True, exist_ok=True)
    (out / f"scale-{what}.json").write_text(json.dumps(document, indent=2) + "\n")
    print(json.dumps(found, indent=2))
