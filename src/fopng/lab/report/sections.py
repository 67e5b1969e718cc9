"""What a report shows together: results grouped by the experiments that they name."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, final

import pandas as pd

from fopng.lab.benchmarks.registry import listing_order
from fopng.lab.report import words
from fopng.lab.runs.config import RunConfig, Value, canonical_json, differing
from fopng.lab.runs.findings import Ablation, Response, Step, rank
from fopng.lab.runs.frame import frame
from fopng.lab.runs.hyperparameters import papers_settings
from fopng.lab.runs.result import RunResult
from fopng.lab.sweep import Rule, respond
from fopng.optim.registry import METHODS

Kind = Literal["comparison", "sweep", "ablation"]
KINDS: Mapping[str, Kind] = {
    "comparison": "comparison",
    "chosen": "comparison",
    "sweep": "sweep",
    "ablation": "ablation",
}
"""What is shown of an experiment, by the first word of its name."""

CHOSEN, NAMED = "settings selected on validation", {"paper": "the paper's settings"}

FAMILIES = {
    "none": "Methods that keep no data of old tasks",
    "data": "Methods that keep data of old tasks",
    "joint": "References: all tasks learnt together",
    "unknown": "Methods that this version does not know",
}
"""Whom a method is compared with depends on what it may keep; a reference is a bound, not a rival."""


def family_of(method: str) -> str:
    """The family of a method.

    >>> family_of("fopng"), family_of("er"), family_of("joint"), family_of("mine")
    ('none', 'data', 'joint', 'unknown')
    """
    entry = METHODS.get(method)
    if entry is None:
        return "unknown"
    return "joint" if entry.joint else "data" if entry.about.keeps_data else "none"


@final
@dataclass(frozen=True)
class Section:
    """Results that may be compared: they differ in method, settings and seed alone."""

    kind: Kind
    condition: str
    """The protocol, and which experiment."""
    results: tuple[RunResult, ...]
    names: Mapping[str, tuple[RunResult, ...]]
    """By what follows the kind in the experiments' names: the sweep's file, the setting that is varied."""

    @property
    def config(self) -> RunConfig:
        """One of the runs, for what they share."""
        return self.results[0].config

    @property
    def title(self) -> str:
        """What it is about."""
        return {"comparison": "", "sweep": "Sweep on ", "ablation": "Ablations on "}[self.kind] + self.config.benchmark

    @property
    def details(self) -> list[str]:
        """What the runs share beside the protocol, in words."""
        config = self.config
        return [
            f"{config.dataset}, {config.scenario}-incremental",
            *([] if config.first_task_lr is None else [f"first task at {config.first_task_lr:g}"]),
            # What is empty, 0 or no says nothing: all classes, in their order.
            *(f"{name} {words.written(value)}" for name, value in sorted(config.benchmark_parameters.items()) if value),
            config.model,
            f"{words.counted(config.epochs, 'epoch')} a task, batches of {config.batch_size}",
            config.dtype,
            *(["accuracy on the part of the training set that is held out"] if config.validation else []),
        ]

    @cached_property
    def labels(self) -> dict[str, str]:
        """The label of each run, by its key: the method, and the settings in which it differs from others of that method."""
        varied = {
            method: differing([r.config.settings for r in self.results if r.config.method == method])
            for method in {r.config.method for r in self.results}
        }
        configs = [result.config for result in self.results]
        return {config.key: label_of(config.method, config.settings, varied[config.method]) for config in configs}

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row a run with its scores, its label and its family; the best mean first within each family."""
        table = frame(self.results)
        table["label"] = table["key"].map(self.labels)
        table["family"] = table["method"].map(family_of)
        # The time of a run says little where runs of other methods used the device meanwhile.
        table["seconds"] = [float("nan") if (s := r.comparable_seconds) is None else s for r in self.results]
        order = table.assign(
            place=table["family"].map(list(FAMILIES).index),
            mean=-table.groupby("label")["final_accuracy"].transform("mean"),
        )
        return table.loc[order.sort_values(["place", "mean", "label", "seed"], na_position="last").index]

    @cached_property
    def lines(self) -> dict[str, list[RunResult]]:
        """The runs of each label, in the order of `frame`."""
        by_key = {result.config.key: result for result in self.results}
        return {
            str(label): [by_key[key] for key in rows["key"]] for label, rows in self.frame.groupby("label", sort=False)
        }

    @cached_property
    def responses(self) -> list[Response]:
        """Of a sweep: how each method responded, and what was chosen."""
        groups = [
            by_method for runs in self.names.values() for by_method in grouped(runs, lambda run: run.config.method)
        ]
        found = [respond(group, Rule.of_paper(self.config.benchmark)) for group in groups]
        return sorted(found, key=lambda response: response.method)

    @cached_property
    def ablations(self) -> list[Ablation]:
        """Of each setting and method that was varied, the steps."""
        return [found for setting, runs in sorted(self.names.items()) for found in ablations_of(runs, setting)]


def sections_of(results: Iterable[RunResult]) -> list[Section]:
    """The sections of a report, in its order: comparisons, sweeps, ablations, each in the order of the benchmarks."""
    places: dict[tuple[object, ...], dict[str, list[RunResult]]] = {}
    # A run that is counted twice makes intervals too narrow.
    for result in {result.config.key: result for result in results}.values():
        for experiment in result.experiments or ("sweep" if result.config.validation else "comparison",):
            word, _, name = experiment.partition("/")
            kind = KINDS.get(word, "comparison")
            shown = held_out(result) if kind == "comparison" and result.config.validation else result
            places.setdefault(_place(kind, word, name, result.config), {}).setdefault(name, []).append(shown)
    found = []
    for place, names in sorted(places.items(), key=lambda item: item[0]):
        runs = {run.config.key: run for some in names.values() for run in some}
        ordered = {name: tuple(sorted(some, key=_reading_order)) for name, some in names.items()}
        kind = KINDS_IN_ORDER[int(str(place[0]))]
        found.append(Section(kind, str(place[-1]), tuple(sorted(runs.values(), key=_reading_order)), ordered))
    return found


def held_out(result: RunResult) -> RunResult:
    """A run with its accuracies on the held-out part in the place of those on test."""
    accuracy, lost = result.validation_accuracy or (), result.validation_lost
    return replace(result, accuracy=accuracy, lost=lost, initial_accuracy=None, accuracy_before=None)


KINDS_IN_ORDER: tuple[Kind, ...] = ("comparison", "sweep", "ablation")


def _place(kind: Kind, word: str, name: str, config: RunConfig) -> tuple[object, ...]:
    """What orders sections, and what runs must share to stand in one."""
    shared = {key: value for key, value in config.as_dict().items() if key not in ("method", "settings", "seed")}
    told = CHOSEN if word == "chosen" else NAMED.get(name, name) if kind == "comparison" else ""
    condition = f"{config.protocol} protocol" + (f", {told}" if told else "")
    order = KINDS_IN_ORDER.index(kind), listing_order(config.benchmark), config.protocol, told
    return *order, canonical_json(shared), condition


def _reading_order(result: RunResult) -> tuple[str, str, int]:
    return result.config.method, canonical_json(result.config.settings), result.config.seed


def label_of(method: str, settings: Mapping[str, Value], names: Iterable[str]) -> str:
    """A method's name with these of its settings; one that it does not have says nothing.

    >>> label_of("sgd", {"lr": 0.1, "momentum": 0.0}, ["lr"])
    'sgd (lr=0.1)'
    """
    told = words.listed({name: settings[name] for name in names if name in settings})
    return f"{method} ({told})" if told else method


def grouped(results: Iterable[RunResult], key: Callable[[RunResult], Any]) -> list[list[RunResult]]:
    """Results with the same key together, in the order of the keys."""
    groups: dict[Any, list[RunResult]] = {}
    for result in results:
        groups.setdefault(key(result), []).append(result)
    return [groups[name] for name in sorted(groups)]


def ablations_of(results: Iterable[RunResult], setting: str) -> list[Ablation]:
    """What a setting does where it alone differs, for each benchmark, protocol and method.

    Args:
        results: runs on test.
        setting: the name of a setting.
    """
    having = [result for result in results if setting in result.config.settings]
    return [_ablation(group, setting) for group in grouped(having, lambda result: _all_but(result.config, setting))]


def _ablation(results: Sequence[RunResult], setting: str) -> Ablation:
    config = results[0].config
    groups = grouped(results, lambda result: canonical_json(result.config.settings[setting]))
    steps = [Step(value=group[0].config.settings[setting], results=tuple(group)) for group in groups]
    return Ablation(
        setting=setting,
        benchmark=config.benchmark,
        protocol=config.protocol,
        method=config.method,
        paper_value=(papers_settings(config) or {}).get(setting),
        steps=tuple(sorted(steps, key=lambda step: rank(step.value))),
    )


def _all_but(config: RunConfig, setting: str) -> tuple[tuple[int, str], str]:
    members = {name: value for name, value in config.as_dict().items() if name not in ("seed", "settings")}
    settings = {name: value for name, value in config.settings.items() if name != setting}
    return listing_order(config.benchmark), canonical_json([members, settings])
