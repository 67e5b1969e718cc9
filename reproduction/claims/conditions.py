"""The runs that claims are judged by, condition by condition: a protocol, whose settings, and what departs from the paper."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import final

from fopng.lab.benchmarks import PAPER, settable
from fopng.lab.report.sections import ablations_of
from fopng.lab.runs.config import RunConfig, canonical_json
from fopng.lab.runs.findings import Ablation, Response
from fopng.lab.runs.hyperparameters import is_papers, paper_benchmarks, paper_entry
from fopng.lab.runs.result import RunResult
from fopng.lab.sweep import Rule, respond
from reproduction.groups import PAPER_SETTINGS, SELECTED_SETTINGS, groups_of


@final
@dataclass(kw_only=True)
class Condition:
    """What was run under one condition."""

    name: str
    methods: dict[tuple[str, str], list[RunResult]] = field(default_factory=dict)
    """By benchmark and method: runs on test, one choice of settings each, in the form that the paper prints."""
    ablations: dict[tuple[str, str], Ablation] = field(default_factory=dict)
    """By benchmark and setting."""
    responses: dict[tuple[str, str], Response] = field(default_factory=dict)
    """By benchmark and method: the sweeps on the held-out part."""

    def of(self, benchmark: str, method: str) -> list[RunResult]:
        """The runs of a method; none where it was not run."""
        return self.methods.get((benchmark, method), [])


def conditions_of(results: Iterable[RunResult]) -> list[Condition]:
    """The runs on the paper's benchmarks, condition by condition."""
    found: dict[str, Condition] = {}

    def at(name: str) -> Condition:
        return found.setdefault(name, Condition(name=name))

    for group in groups_of(results):
        config = group.config
        if config.benchmark not in paper_benchmarks():
            continue
        protocol, departures = f"{config.protocol} protocol", _departures(config)
        if group.kind == "sweep":
            response = respond(group.runs, Rule.of_paper(config.benchmark))
            at(f"{protocol}, tried on validation{departures}").responses[config.benchmark, config.method] = response
        elif group.kind == "ablation":
            for ablation in ablations_of(group.runs, group.name):
                if _is_of_the_papers(ablation):
                    at(f"{protocol}, {PAPER_SETTINGS}{departures}").ablations[config.benchmark, group.name] = ablation
        else:
            whose, runs = _one_choice(group.runs, selected=group.kind == "chosen")
            for run in runs:
                at(f"{protocol}{whose}{departures}").methods.setdefault(
                    (config.benchmark, run.config.method), []
                ).append(run)
    _lend_cifar(found)
    return [found[condition] for condition in sorted(found)]


def _is_of_the_papers(ablation: Ablation) -> bool:
    """Whether all but the setting that is varied is the paper's."""
    config = ablation.steps[0].results[0].config
    settings = {**config.settings, ablation.setting: ablation.paper_value}
    return is_papers(dataclasses.replace(config, settings=settings))


def _one_choice(results: Sequence[RunResult], *, selected: bool) -> tuple[str, list[RunResult]]:
    """Whose settings they are, in words, and the runs of methods with one choice of them.

    Among settings of all kinds those of the paper are meant.
    """
    results = [result for result in results if result.config.settings.get("projection", "printed") == "printed"]
    papers = [] if selected else [result for result in results if is_papers(result.config)]
    results = papers or results
    choices = Counter(method for method, _ in {(r.config.method, canonical_json(r.config.settings)) for r in results})
    whose = f", {SELECTED_SETTINGS}" if selected else f", {PAPER_SETTINGS}" if papers else ""
    return whose, [result for result in results if choices[result.config.method] == 1]


def _lend_cifar(found: dict[str, Condition]) -> None:
    """On CIFAR both protocols are the same runs: what was done under one counts for the other."""
    for name, condition in found.items():
        other = found.get(name.replace("printed protocol", "matched protocol"), condition)
        lent = {where: runs for where, runs in other.methods.items() if not where[0].endswith("mnist")}
        condition.methods = {**lent, **condition.methods}


def _departures(config: RunConfig) -> str:
    """How a run departs from the paper's experiment of this name, in words; empty where it does not."""
    entry, benchmark = paper_entry(config.benchmark, "sgd"), PAPER[config.benchmark]
    mnist = config.benchmark.endswith("mnist")
    # The printed text names a rate for the first task on CIFAR only.
    rate = None if config.protocol == "printed" and mnist else entry.first_task_lr
    here = {
        "dataset": (config.dataset, benchmark.dataset),
        "scenario": (config.scenario, benchmark.scenario.value),
        "epochs": (config.epochs, entry.epochs),
        "batch size": (config.batch_size, entry.batch_size),
        "precision": (config.dtype, "float32"),
        "model": (config.model, "mlp" if mnist else "convnet"),
        "first task's rate": (config.first_task_lr, rate),
    }
    papers = {name: getattr(benchmark, name) for name in settable(benchmark) if name != "scenario"}
    here |= {name: (value, papers.get(name)) for name, value in config.benchmark_parameters.items()}
    words = [f"{name} {value}" for name, (value, own) in here.items() if canonical_json(value) != canonical_json(own)]
    return f"; {', '.join(words)}" if words else ""
