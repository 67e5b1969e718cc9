"""What a batch of ten costs, here and from a torch DataLoader over the same samples, in one run.

    python bench/data.py            a table, and bench/results/data.json

Two DataLoaders: one over uint8 arrays of the same shape, which moves and scales each sample as this package does a
batch, and one that is given every advantage, float32 tensors in memory with the pixels already moved and scaled.
MNIST and CIFAR-10 are the real ones where they are on this machine, and random bytes of the same shape elsewhere.
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from fopng.lab.benchmarks import Permuted, Rotated, SplitByClass
from fopng.lab.data import DATASETS, DatasetMissingError, KnownDataset, LoadedDataset, Split, load

BATCH = 10
ROUNDS = 5
BATCHES_A_ROUND = 1_000
RESULTS = Path(__file__).parent / "results" / "data.json"


def main() -> None:
    """Measure, print, write."""
    torch.set_num_threads(1)
    rows = [measure(*case) for case in cases()]
    loads = [loading(name) for name in ("mnist", "cifar10") if is_real(name)]
    show(rows, loads)
    RESULTS.parent.mkdir(exist_ok=True)
    environment = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cores": os.cpu_count(),
        "threads": 1,
    }
    RESULTS.write_text(json.dumps({"environment": environment, "batches": rows, "loading": loads}, indent=2) + "\n")


def cases() -> Iterable[tuple[str, Split, str, bool]]:
    """The splits that are walked: name, split, whether the pixels are real, whether they are moved about."""
    mnist, source = images("mnist")
    for name, benchmark, moved in (
        ("MNIST", SplitByClass("mnist", classes_per_task=10), False),
        ("Permuted-MNIST", Permuted("mnist", tasks=1), True),
        ("Rotated-MNIST", Rotated("mnist", angles=(20.0,)), True),
    ):
        yield name, benchmark.stream(mnist, seed=0, validation=False)[0].train, source, moved
    cifar, source = images("cifar10")
    yield (
        "CIFAR-10, two classes",
        SplitByClass("cifar10").stream(cifar, seed=0, validation=False)[0].train,
        source,
        False,
    )


def is_real(name: str) -> bool:
    """Whether a dataset is on this machine."""
    try:
        load(name)
    except DatasetMissingError:
        return False
    return True


def images(name: str) -> tuple[LoadedDataset, str]:
    """A dataset, or random bytes of its shape."""
    if is_real(name):
        return load(name), "real"
    known = DATASETS[name]
    assert isinstance(known, KnownDataset)
    contents = known.contents
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, contents.shape("train-images"), dtype=np.uint8)
    labels = np.arange(contents.train) % contents.classes
    return LoadedDataset.from_arrays(name, train=(pixels, labels), test=(pixels[:100], labels[:100])), "random"


def measure(name: str, split: Split, source: str, moved: bool) -> dict[str, Any]:
    """Microseconds a batch, the best of rounds that take turns."""
    x, y = split.tensors()
    pixels = torch.randperm(x[0, 0].numel()) if moved else None
    one_by_one = OneByOne(torch.randint(0, 256, x.shape, dtype=torch.uint8), y, pixels)
    walked: dict[str, Iterable[object]] = {
        "fopng": split.batches(BATCH, generator=torch.Generator().manual_seed(0)),
        "uint8_arrays": DataLoader(one_by_one, batch_size=BATCH, shuffle=True),
        "ready_tensors": DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True),
    }
    rounds = [{kind: walk(batches) for kind, batches in walked.items()} for _ in range(ROUNDS + 1)][1:]
    times = {f"{kind}_us": min(each[kind] for each in rounds) for kind in walked}
    ratios = {f"{kind}_ratio": times[f"{kind}_us"] / times["fopng_us"] for kind in ("uint8_arrays", "ready_tensors")}
    return {"case": name, "pixels": source, **times, **ratios}


class OneByOne(Dataset[tuple[Tensor, Tensor]]):
    """Bytes moved and scaled a sample at a time, as a Dataset with transforms does it, written as lean as can be."""

    def __init__(self, raw: Tensor, targets: Tensor, pixels: Tensor | None) -> None:
        self.raw = raw
        self.targets = targets
        self.pixels = pixels

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        x = self.raw[row]
        if self.pixels is not None:
            x = x.flatten(1)[:, self.pixels].view(x.shape)
        return x.float().mul_(1 / 255), self.targets[row]


def walk(batches: Iterable[object]) -> float:
    """Microseconds a batch over the first thousand of an epoch, its shuffling included."""
    start, count = time.perf_counter(), 0
    for _ in batches:
        count += 1
        if count == BATCHES_A_ROUND:
            break
    return (time.perf_counter() - start) / count * 1e6


def loading(name: str) -> dict[str, Any]:
    """Seconds of the first load, which decodes, and of a later one, which maps."""
    kept = os.environ.get("FOPNG_CACHE")
    with tempfile.TemporaryDirectory() as empty:
        os.environ["FOPNG_CACHE"] = empty
        try:
            first, later = timed_load(name), timed_load(name)
        except DatasetMissingError:  # the files are only in the cache that was put aside
            first, later = float("nan"), float("nan")
        finally:
            if kept is None:
                del os.environ["FOPNG_CACHE"]
            else:
                os.environ["FOPNG_CACHE"] = kept
    return {"dataset": name, "first_s": first, "later_s": later}


def timed_load(name: str) -> float:
    """Seconds of one load."""
    start = time.perf_counter()
    load(name)
    return time.perf_counter() - start


def show(rows: list[dict[str, Any]], loads: list[dict[str, Any]]) -> None:
    """The tables."""
    print(f"{'microseconds a batch of ten':28} {'fopng':>6} {'DataLoader, uint8 arrays':>26} {'ready tensors':>16}")
    for row in rows:
        other = f"{row['uint8_arrays_us']:17.1f} {row['uint8_arrays_ratio']:7.1f}x"
        ready = f"{row['ready_tensors_us']:8.1f} {row['ready_tensors_ratio']:6.1f}x"
        print(f"{row['case'] + ', ' + row['pixels']:28} {row['fopng_us']:6.1f} {other} {ready}")
    for each in loads:
        print(f"load {each['dataset']}: first {each['first_s']:.2f} s, later {1000 * each['later_s']:.1f} ms")


if __name__ == "__main__":
    main()
