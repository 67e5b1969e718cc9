"""Benchmarks: datasets made into streams of tasks."""

from fopng.benchmarks.base import Benchmark, ImageBenchmark
from fopng.benchmarks.catalog import BENCHMARKS, PAPER, find_benchmark
from fopng.benchmarks.domains import Permuted, Rotated
from fopng.benchmarks.named import named_function
from fopng.benchmarks.own import OwnStream
from fopng.benchmarks.settings import configure, settable
from fopng.benchmarks.split import SplitByClass
from fopng.benchmarks.stream import Scenario, Task, TaskStream

__all__ = [
    "BENCHMARKS",
    "PAPER",
    "Benchmark",
    "ImageBenchmark",
    "OwnStream",
    "Permuted",
    "Rotated",
    "Scenario",
    "SplitByClass",
    "Task",
    "TaskStream",
    "configure",
    "find_benchmark",
    "named_function",
    "settable",
]
