"""The demonstration's runs: small versions of the paper's MNIST benchmarks, with settings in `demo.toml` beside this file."""

import tomllib
from collections.abc import Sequence
from importlib import resources
from typing import Any

from fopng.lab.runs.request import Request


def demo_requests(seeds: Sequence[int]) -> list[Request]:
    """A comparison of the paper's seven methods and our own for each benchmark.

    >>> [request.benchmark for request in demo_requests([0])]
    ['split-mnist-5k', 'rotated-mnist-5k', 'permuted-mnist-5k']
    """
    text = resources.files("fopng.lab.runs").joinpath("demo.toml").read_text(encoding="utf-8")
    return [_request(benchmark, table, seeds) for benchmark, table in tomllib.loads(text).items()]


def _request(benchmark: str, table: dict[str, Any], seeds: Sequence[int]) -> Request:
    settings = {method: some for method, some in table.items() if isinstance(some, dict)}
    return Request(
        benchmark=benchmark,
        methods=list(settings),
        seeds=seeds,
        epochs=table["epochs"],
        first_task_lr=table["first_task_lr"],
        assignments=[f"{method}.{name}={value}" for method, some in settings.items() for name, value in some.items()],
    )
