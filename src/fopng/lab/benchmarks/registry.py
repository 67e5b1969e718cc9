"""The benchmarks that are known by name."""

from __future__ import annotations

import difflib

from fopng.lab.benchmarks.base import Benchmark, DatasetBenchmark
from fopng.lab.benchmarks.own import OwnStream
from fopng.lab.benchmarks.pixels import Permuted, Rotated
from fopng.lab.benchmarks.split import SplitByClass
from fopng.lab.benchmarks.stream import Scenario
from fopng.lab.data.catalog import DATASETS
from fopng.lab.data.formats import image_folder

KINDS: dict[str, type[DatasetBenchmark]] = {each.kind: each for each in (SplitByClass, Rotated, Permuted)}

PAPER: dict[str, DatasetBenchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        SplitByClass("mnist"),
        Rotated("mnist"),
        Permuted("mnist"),
        SplitByClass("cifar10", Scenario.TASK),
        SplitByClass("cifar100", Scenario.TASK, classes_per_task=10),
    )
}
"""The paper's five, exactly."""

BENCHMARKS: dict[str, DatasetBenchmark] = PAPER | {
    f"{kind}-{dataset}": make(dataset)
    for dataset in DATASETS
    for kind, make in KINDS.items()
    if f"{kind}-{dataset}" not in PAPER
}
"""In the order in which they are listed, and results on them."""


def listing_order(name: str) -> tuple[int, str]:
    """What lists of benchmarks are sorted by: the catalogue's order, and after it any others by name.

    >>> sorted(["mine:stream", "permuted-mnist", "rotated-mnist", "split-mnist"], key=listing_order)
    ['split-mnist', 'rotated-mnist', 'permuted-mnist', 'mine:stream']
    """
    known = list(BENCHMARKS)
    return (known.index(name) if name in BENCHMARKS else len(known)), name


def find_benchmark(reference: str) -> Benchmark:
    """A benchmark by its name, by `module:function`, or over somebody's own data.

    `rotated-FOLDER` and `split-module:function` are benchmarks of a folder of images and of what a function returns.
    """
    if reference in BENCHMARKS:
        return BENCHMARKS[reference]
    kind, _, dataset = reference.partition("-")
    if kind in KINDS and (dataset in DATASETS or ":" in dataset or image_folder(dataset) is not None):
        return KINDS[kind](dataset)
    if image_folder(reference) is not None:
        return SplitByClass(reference, Scenario.TASK)
    if ":" in reference:
        return OwnStream(reference)
    near = difflib.get_close_matches(reference, BENCHMARKS, n=1)
    hint = f"Did you mean {near[0]}?" if near else "Run: fopng benchmarks"
    raise ValueError(f"Expected a benchmark's name, a folder of images or module:function, got {reference!r}. {hint}")
