"""Benchmarks: datasets made into streams of tasks."""

from fopng.lab.benchmarks.base import Benchmark, DatasetBenchmark, settable
from fopng.lab.benchmarks.own import OwnStream
from fopng.lab.benchmarks.pixels import Permuted, Rotated
from fopng.lab.benchmarks.registry import BENCHMARKS, PAPER, find_benchmark
from fopng.lab.benchmarks.split import SplitByClass
from fopng.lab.benchmarks.stream import Scenario, Task, TaskStream

__all__ = [
    "BENCHMARKS",
    "PAPER",
    "Benchmark",
    "DatasetBenchmark",
    "OwnStream",
    "Permuted",
    "Rotated",
    "Scenario",
    "SplitByClass",
    "Task",
    "TaskStream",
    "find_benchmark",
    "settable",
]
