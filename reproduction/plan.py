"""What the paper's experiments are: five benchmarks, seven methods and those beside them, three ablations."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import final

from fopng.lab.runs.ablations import ABLATIONS, BENCHMARKS, METHOD, ablated_values
from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.hyperparameters import paper_benchmarks, paper_methods
from fopng.lab.runs.request import configurations
from fopng.lab.runs.settings import unknown

ORTHOGONAL = ("projection=orthogonal",)

LINES = (
    *((method, ()) for method in paper_methods()),
    *(("fopng", ORTHOGONAL), ("fopng-prefisher", ORTHOGONAL), ("ong", ()), ("natural-ogd", ())),
)
"""The paper's methods, and beside them the orthogonal forms and its neighbours."""

COMPARISONS_PART, ABLATIONS_PART = "comparisons", "ablations"


@final
@dataclass(frozen=True)
class Part:
    """Some of the runs, that are done together."""

    title: str
    experiment: str
    """The name that their results get."""
    configs: tuple[RunConfig, ...]


def part_names() -> list[str]:
    """What can be done alone: each benchmark, each ablation, all of either kind."""
    return [*paper_benchmarks(), *ABLATIONS, COMPARISONS_PART, ABLATIONS_PART]


def paper_parts(
    *,
    protocols: Sequence[str],
    seeds: Sequence[int],
    epochs: int | None = None,
    only: Sequence[str] = (),
    data_dir: Path | None = None,
) -> Iterator[Part]:
    """The experiments, in the order they are done.

    Args:
        protocols: `matched`, `printed` or both. Where both would give the same runs, on CIFAR, only the first is done.
        seeds: the paper's are five.
        epochs: fewer than the paper's, for a trial.
        only: names out of `part_names`; all of it when empty.
        data_dir: where to look for datasets first.
    """
    for name in only:
        if name not in part_names():
            raise ValueError(unknown("a part of the paper", name, part_names()))
    runs = partial(configurations, seeds=seeds, epochs=epochs, data_dir=data_dir)
    wanted = set(only or (COMPARISONS_PART, ABLATIONS_PART))
    for benchmark in paper_benchmarks():
        for protocol in protocols if benchmark.endswith("mnist") else protocols[:1]:
            if wanted & {benchmark, COMPARISONS_PART}:
                here = partial(runs, benchmark=benchmark, protocol=protocol)
                configs = tuple(each for name, words in LINES for each in here(methods=[name], assignments=words))
                yield Part(f"{benchmark}, {protocol}", "comparison/paper", configs)
    for name, ablated in ABLATIONS.items():
        for benchmark, protocol in ((benchmark, protocol) for benchmark in BENCHMARKS for protocol in protocols):
            if wanted & {name, ABLATIONS_PART}:
                values = ablated_values(ablated)
                found = runs(benchmark=benchmark, protocol=protocol, methods=[METHOD], choices=values)
                yield Part(f"{name} on {benchmark}, {protocol}", f"ablation/{ablated.setting}", tuple(found))
