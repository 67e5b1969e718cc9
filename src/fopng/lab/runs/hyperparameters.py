"""The paper's hyper-parameters, as data: `paper.toml` beside this file."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, final

from fopng.lab.data.catalog import DATASETS, KnownDataset
from fopng.lab.runs.config import RunConfig, canonical_json
from fopng.lab.runs.settings import NOTHING, SettingValue, unknown
from fopng.optim.registry import METHODS

_BORROWED = "borrowed"

_FEW_CLASSES = 10


@final
@dataclass(frozen=True)
class PaperEntry:
    """What the paper used for one method on one benchmark."""

    settings: Mapping[str, SettingValue]
    """By the names of the method's constructor; None where the table says `full`."""
    epochs: int
    batch_size: int
    first_task_lr: float
    """SGD's rate on the first task, under the matched protocol."""


def paper_entry(benchmark: str, method: str) -> PaperEntry:
    """The paper's settings of a method on a benchmark.

    >>> paper_entry("split-mnist", "fopng").settings["damping"]
    0.0005
    """
    table = _table()
    if benchmark not in table or benchmark == _BORROWED:
        raise ValueError(unknown("a benchmark of the paper", benchmark, paper_benchmarks()))
    row = table[benchmark]
    methods = _methods(row)
    if method not in METHODS or METHODS[method].joint:
        learning_one_by_one = [name for name, entry in METHODS.items() if not entry.joint]
        raise ValueError(unknown("a method that learns task after task", method, learning_one_by_one))
    # a method of which nothing is written has its own defaults, and the learning rate of SGD
    lenders = [method] if method in methods else table[_BORROWED].get(method, ["sgd"])
    written = {name: value for lender in lenders for name, value in methods[lender].items()}
    settings = {name: None if value in NOTHING else value for name, value in written.items()}
    return PaperEntry(settings, row["epochs"], row["batch_size"], row["first_task_lr"])


def nearest_row(kind: str, *, channels: int, classes: int) -> str:
    """The benchmark of the paper whose settings serve another one: of the same kind, on the most similar images.

    Args:
        kind: permuted, rotated or split; anything else is taken for a split.
        channels: of an image: 1 for grey.
        classes: of the dataset.

    >>> nearest_row("rotated", channels=3, classes=10), nearest_row("split", channels=3, classes=100)
    ('rotated-mnist', 'split-cifar100')
    """
    if kind in ("permuted", "rotated"):
        return f"{kind}-mnist"
    if channels == 1:
        return "split-mnist"
    return "split-cifar10" if classes <= _FEW_CLASSES else "split-cifar100"


def least_first_task_accuracy(benchmark: str) -> float:
    """What a run must reach on the first task to be selected; 0 where the paper's selection drops nothing.

    >>> least_first_task_accuracy("rotated-mnist")
    0.9
    """
    return float(_table().get(benchmark, {}).get("first_task_at_least", 0.0))


def paper_benchmarks() -> list[str]:
    """The benchmarks that the paper's table has."""
    return [name for name in _table() if name != _BORROWED]


def paper_methods() -> list[str]:
    """The methods that the paper compares, in the order of its table."""
    return list(_methods(_table()[paper_benchmarks()[0]]))


def _methods(row: Mapping[str, Any]) -> dict[str, dict[str, SettingValue]]:
    return {name: member for name, member in row.items() if isinstance(member, dict)}


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(resources.files("fopng.lab.runs").joinpath("paper.toml").read_text(encoding="utf-8"))


def papers_settings(config: RunConfig) -> dict[str, SettingValue] | None:
    """What the paper names for a run's method on its benchmark, or on the most similar one; None for what it does not know."""
    row = _row(config)
    try:
        return None if row is None else dict(paper_entry(row, config.method).settings)
    except ValueError:
        return None


def is_papers(config: RunConfig) -> bool:
    """Whether a run has the paper's settings: every one that the paper names, for this benchmark or the most similar one."""
    entry = papers_settings(config)
    return entry is not None and all(
        canonical_json(config.settings.get(n)) == canonical_json(v) for n, v in entry.items()
    )


def _row(config: RunConfig) -> str | None:
    if config.benchmark in paper_benchmarks():
        return config.benchmark
    known = DATASETS.get(config.dataset)
    if not isinstance(known, KnownDataset):
        return None
    contents = known.contents
    return nearest_row(config.benchmark.partition("-")[0], channels=contents.image[0], classes=contents.classes)
