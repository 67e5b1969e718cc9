"""The demonstration's runs: small versions of the paper's MNIST benchmarks, with settings in `demo.toml` beside this file."""

import tomllib
from collections.abc import Sequence
from importlib import resources
from typing import Any

from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.request import configurations


def demo_configurations(seeds: Sequence[int]) -> list[RunConfig]:
    """A comparison of the paper's seven methods and our own on each benchmark.

    >>> sorted({config.benchmark for config in demo_configurations([0])})
    ['permuted-mnist-5k', 'rotated-mnist-5k', 'split-mnist-5k']
    """
    text = resources.files("fopng.lab.runs").joinpath("demo.toml").read_text(encoding="utf-8")
    return [
        config for benchmark, table in tomllib.loads(text).items() for config in _comparison(benchmark, table, seeds)
    ]


def _comparison(benchmark: str, table: dict[str, Any], seeds: Sequence[int]) -> list[RunConfig]:
    settings = {method: some for method, some in table.items() if isinstance(some, dict)}
    return configurations(
        benchmark=benchmark,
        methods=list(settings),
        seeds=seeds,
        epochs=table["epochs"],
        first_task_lr=table["first_task_lr"],
        assignments=[f"{method}.{name}={value}" for method, some in settings.items() for name, value in some.items()],
    )
