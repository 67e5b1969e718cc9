"""What the paper's experiments are: five benchmarks, seven methods and those beside them, three ablations."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from fopng.lab.runs.ablations import ABLATIONS, BENCHMARKS, METHOD, ablated_values
from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.hyperparameters import paper_benchmarks, paper_methods
from fopng.lab.runs.request import configurations
from fopng.lab.runs.settings import unknown

BESIDE = (
    ("fopng", ("projection=orthogonal",)),
    ("fopng-prefisher", ("projection=orthogonal",)),
    ("ong", ()),
    ("natural-ogd", ()),
)
"""What stands beside the paper's methods: the orthogonal forms, and its neighbours."""

COMPARISONS_PART, ABLATIONS_PART = "comparisons", "ablations"


@final
@dataclass(frozen=True, kw_only=True)
class Part:
    """Some of the runs, that are done together."""

    name: str
    """A benchmark, or an ablation."""
    title: str
    asked: tuple[dict[str, Any], ...]
    """Arguments of `configurations`."""

    def configurations(self) -> list[RunConfig]:
        """The runs, each once."""
        found = {config.key: config for words in self.asked for config in configurations(**words)}
        return list(found.values())


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
) -> list[Part]:
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
    parts = []
    for benchmark in paper_benchmarks():
        if not only or {benchmark, COMPARISONS_PART} & set(only):
            for protocol in protocols if benchmark.endswith("mnist") else protocols[:1]:
                base = _base(benchmark, protocol, seeds, epochs, data_dir)
                parts.append(Part(name=benchmark, title=f"{benchmark}, {protocol}", asked=_comparison(base)))
    for name, ablated in ABLATIONS.items():
        if not only or {name, ABLATIONS_PART} & set(only):
            for benchmark in BENCHMARKS:
                for protocol in protocols:
                    base = _base(benchmark, protocol, seeds, epochs, data_dir)
                    title = f"{name} on {benchmark}, {protocol}"
                    parts.append(Part(name=name, title=title, asked=({**base, "choices": ablated_values(ablated)},)))
    return parts


def _base(
    benchmark: str, protocol: str, seeds: Sequence[int], epochs: int | None, data_dir: Path | None
) -> dict[str, Any]:
    return {
        "benchmark": benchmark,
        "methods": [METHOD],
        "seeds": seeds,
        "protocol": protocol,
        "epochs": epochs,
        "data_dir": data_dir,
    }


def _comparison(base: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    variants = [*((method, ()) for method in paper_methods()), *BESIDE]
    own = base.get("assignments", [])
    return tuple({**base, "methods": [method], "assignments": [*own, *more]} for method, more in variants)
