"""The runs that claims are judged by: those of one protocol and one choice of settings, by benchmark and method."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import final

from fopng.lab.analysis.experiments import PAPER_SETTINGS, Comparison, Experiments, is_papers
from fopng.lab.benchmarks import PAPER, ImageBenchmark, settable
from fopng.lab.runs.config import RunConfig, canonical_json
from fopng.lab.runs.findings import Ablation, Response, final_by_seed
from fopng.lab.runs.hyperparameters import paper_benchmarks, paper_entry
from fopng.lab.runs.result import RunResult
from reproduction.claims.check import BySeed

Score = Callable[[Sequence[RunResult]], BySeed]


@final
@dataclass(kw_only=True)
class ClaimRuns:
    """What was run under one condition."""

    condition: str
    methods: dict[str, dict[str, list[RunResult]]] = field(default_factory=dict)
    """For each benchmark the runs of each method, in the form that the paper prints."""
    ablations: dict[tuple[str, str], Ablation] = field(default_factory=dict)
    """By setting and benchmark."""
    responses: dict[tuple[str, str], Response] = field(default_factory=dict)
    """By benchmark and method: the sweeps on the held-out part."""

    def find(
        self, benchmark: str, method: str, score: Score = final_by_seed
    ) -> tuple[BySeed, Sequence[RunResult]] | None:
        """A number for each seed, with its runs; None where the method was not run there."""
        results = self.methods.get(benchmark, {}).get(method)
        return None if not results else (score(results), results)


def gather(experiments: Experiments) -> list[ClaimRuns]:
    """The runs on the paper's benchmarks, condition by condition."""
    found: dict[str, ClaimRuns] = {}

    def at(condition: str) -> ClaimRuns:
        return found.setdefault(condition, ClaimRuns(condition=condition))

    for comparison in experiments.comparisons:
        config = comparison.results[0].config
        if config.benchmark in paper_benchmarks():
            condition, results = _judged(comparison)
            runs = at(condition + _departures(config)).methods.setdefault(config.benchmark, {})
            for result in results:
                runs.setdefault(result.config.method, []).append(result)
    for ablation in experiments.ablations:
        config = ablation.steps[0].results[0].config
        settings = {**config.settings, ablation.setting: ablation.paper_value}
        if config.benchmark in paper_benchmarks() and is_papers(dataclasses.replace(config, settings=settings)):
            condition = f"{config.protocol} protocol, {PAPER_SETTINGS}" + _departures(config)
            at(condition).ablations[ablation.setting, ablation.benchmark] = ablation
    for response in experiments.responses:
        config = response.points[0].results[0].config
        if config.benchmark in paper_benchmarks():
            condition = f"{config.protocol} protocol, tried on validation" + _departures(config)
            at(condition).responses[response.benchmark, response.method] = response
    _lend_cifar(found)
    return [found[condition] for condition in sorted(found)]


def _judged(comparison: Comparison) -> tuple[str, list[RunResult]]:
    """The runs that claims are about, one choice of settings for each method, and their condition.

    Among settings of all kinds those of the paper are meant; where there are none, methods with one choice of settings.
    """
    results = list(filter(_is_printed, comparison.results))
    papers = [result for result in results if is_papers(result.config)]
    if comparison.settings or not papers:
        choices = {(result.config.method, canonical_json(result.config.settings)) for result in results}
        single = Counter(method for method, _ in choices)
        return comparison.condition, [result for result in results if single[result.config.method] == 1]
    return f"{comparison.condition}, {PAPER_SETTINGS}", papers


def _is_printed(result: RunResult) -> bool:
    return result.config.settings.get("projection", "printed") == "printed"


def _lend_cifar(found: dict[str, ClaimRuns]) -> None:
    """On CIFAR both protocols are the same runs: what was done under one counts for the other."""
    for condition, runs in found.items():
        other = found.get(condition.replace("printed protocol", "matched protocol"))
        if other is not None and other is not runs:
            lent = {name: methods for name, methods in other.methods.items() if not name.endswith("mnist")}
            runs.methods = {**lent, **runs.methods}


def _departures(config: RunConfig) -> str:
    """How a run departs from the paper's experiment of this name, in words; empty where it does not."""
    entry, benchmark = paper_entry(config.benchmark, "sgd"), PAPER[config.benchmark]
    here = {
        "dataset": config.dataset,
        "scenario": config.scenario,
        "epochs": config.epochs,
        "batch size": config.batch_size,
        "precision": config.dtype,
        "model": config.model,
        "first task's rate": config.first_task_lr,
        **config.benchmark_parameters,
    }
    papers = {
        "dataset": benchmark.dataset,
        "scenario": benchmark.scenario.value,
        "epochs": entry.epochs,
        "batch size": entry.batch_size,
        "precision": "float32",
        "model": "mlp" if config.benchmark.endswith("mnist") else "convnet",
        "first task's rate": None if _has_own_rate(config) else entry.first_task_lr,
        **_parameters(benchmark),
    }
    words = [f"{n} {v}" for n, v in here.items() if canonical_json(v) != canonical_json(papers.get(n))]
    return f"; {', '.join(words)}" if words else ""


def _has_own_rate(config: RunConfig) -> bool:
    """The printed text names a rate for the first task on CIFAR only."""
    return config.protocol == "printed" and config.benchmark.endswith("mnist")


def _parameters(benchmark: ImageBenchmark) -> dict[str, object]:
    return {name: getattr(benchmark, name) for name in settable(benchmark) if name != "scenario"}
