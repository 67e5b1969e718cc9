"""A configuration and a result to start from in tests of what runs leave behind."""

import dataclasses
from typing import Any

from fopng.config import RunConfig
from fopng.result import RunResult


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


def result(accuracy: Any = ((0.9, None), (0.8, 0.95)), *, removed: Any = (None, 0.1), **changes: Any) -> RunResult:
    return RunResult(
        config=config(**changes),
        accuracy=accuracy,
        removed_fraction_by_task=removed,
        seconds_by_phase={"train": 3.0, "refresh": 1.5},
        peak_memory_bytes=1024,
        environment={"torch": "2.13.0", "device": "cpu", "threads": 1},
    )
