"""A configuration and a result to start from in tests of what runs leave behind."""

import dataclasses
from random import Random
from typing import Any

from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.result import RunResult


def config(**changes: Any) -> RunConfig:
    base = RunConfig(
        benchmark="split-mnist",
        dataset="mnist",
        scenario="domain",
        benchmark_parameters={"tasks": 3},
        model="mlp",
        method="fopng",
        settings={"lr": 1e-5, "damping": 5e-4, "fisher_samples": None},
        protocol="matched",
        first_task_lr=1e-2,
        seed=0,
        epochs=5,
        batch_size=10,
        validation=False,
        dtype="float32",
    )
    return dataclasses.replace(base, **changes)


def moved(tasks: int, rate: float) -> list[list[float | None]]:
    """What was lost after each task, had every old one lost the same with each task since."""
    return [[rate * (k - j) for j in range(k + 1)] + [None] * (tasks - k - 1) for k in range(tasks)]


def result(accuracy: Any = ((0.9, None), (0.8, 0.95)), *, removed: Any = (None, 0.1), **changes: Any) -> RunResult:
    return RunResult(
        config=config(**changes),
        accuracy=accuracy,
        measured={"removed_fraction": removed},
        seconds_by_phase={"train": 3.0, "refresh": 1.5},
        peak_memory_bytes=1024,
        environment={"torch": "2.13.0", "device": "cpu", "threads": 1},
    )


def laboratory(
    methods: Any,
    *,
    benchmarks: Any = ("split-mnist",),
    protocols: Any = ("matched",),
    seeds: int = 3,
    tasks: int = 5,
    **changes: Any,
) -> list[RunResult]:
    """Results that look like those of real runs: each method learns and forgets in its own measure, every seed differs."""
    found = []
    for benchmark in benchmarks:
        for protocol in protocols:
            for place, method in enumerate(methods):
                for seed in range(seeds):
                    random = Random(ascii((benchmark, protocol, method, seed)))
                    learnt, lost = 0.97 - 0.01 * (place % 7), 0.02 + 0.02 * (place % 5)
                    matrix = [
                        [max(0.1, learnt - lost * (k - j) + random.gauss(0, 0.01)) for j in range(k + 1)]
                        + [None] * (tasks - k - 1)
                        for k in range(tasks)
                    ]
                    projects = place % 3 == 0
                    removed = (None, *(random.uniform(0.1, 0.2) for _ in range(tasks - 1))) if projects else ()
                    own = {"settings": {"lr": 10.0 ** -(1 + place % 4)}, **changes}
                    run = result(
                        matrix,
                        removed=removed,
                        benchmark=benchmark,
                        protocol=protocol,
                        method=method,
                        seed=seed,
                        **own,
                    )
                    found.append(dataclasses.replace(run, lost=moved(tasks, lost)))
    return found


def diverged(run: RunResult, rows: int = 1) -> RunResult:
    """The same run, had its numbers ended after some tasks."""
    return dataclasses.replace(run, accuracy=run.accuracy[:rows], lost=(run.lost or ())[:rows], status="diverged")
