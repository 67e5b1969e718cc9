"""Results side by side: what may be compared in one panel, what is averaged over seeds in one line."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import final

from fopng.lab.benchmarks.registry import listing_order
from fopng.lab.report.families import Family
from fopng.lab.report.lines import Line, label_of
from fopng.lab.report.standing import standings
from fopng.lab.report.words import counted, setting_words
from fopng.lab.runs.config import RunConfig, canonical_json
from fopng.lab.runs.result import RunResult


@final
@dataclass(frozen=True)
class Panel:
    """Runs that differ in method, settings and seed alone. Protocols are never mixed."""

    title: str
    condition: str
    """The protocol, and whose settings."""
    details: tuple[str, ...]
    """The rest of what the runs share, in words."""
    lines: tuple[Line, ...]
    """Family by family, the most accurate first."""

    @property
    def families(self) -> list[tuple[Family, list[Line]]]:
        """The lines by family."""
        return [(family, list(members)) for family, members in groupby(self.lines, lambda line: line.family)]


def summarise(results: Iterable[RunResult]) -> list[Panel]:
    """A panel for each set of runs that can be compared, in the order of the benchmarks."""
    panels = _grouped(unique(results), _shared)
    return [panel_of(members, f"{members[0].config.protocol} protocol") for members in panels]


def unique(results: Iterable[RunResult]) -> list[RunResult]:
    """Each run once: a run that is counted twice makes intervals too narrow."""
    return list({result.config.key: result for result in results}.values())


def panel_of(results: Sequence[RunResult], condition: str) -> Panel:
    """The panel of runs that differ in method, settings and seed alone.

    Args:
        results: the runs.
        condition: what they share that a reader looks for first, in words.
    """
    config = results[0].config
    groups = _grouped(results, lambda result: (result.config.method, canonical_json(result.config.settings)))
    settings = [group[0].config for group in groups]
    lines = [Line.of(_label(group[0].config, settings), group) for group in groups]
    return Panel(config.benchmark, condition, details_of(config), tuple(sorted(_judged(lines), key=_reading_order)))


def details_of(config: RunConfig) -> tuple[str, ...]:
    """What runs share beside the protocol, in words."""
    # What is empty, 0 or no says nothing: all classes, in their order.
    parameters = [
        f"{name} {setting_words(value)}" for name, value in sorted(config.benchmark_parameters.items()) if value
    ]
    return (
        f"{config.dataset}, {config.scenario}-incremental",
        *([] if config.first_task_lr is None else [f"first task at {config.first_task_lr:g}"]),
        *parameters,
        config.model,
        f"{counted(config.epochs, 'epoch', 'epochs')} a task, batches of {config.batch_size}",
        config.dtype,
        *(["part of the training set held out"] if config.validation else []),
    )


def _label(config: RunConfig, among: Sequence[RunConfig]) -> str:
    return label_of(config.method, config.settings, [one.settings for one in among if one.method == config.method])


def _judged(lines: Sequence[Line]) -> list[Line]:
    """The lines with their standing among those of their family."""
    found = []
    for family in Family:
        rivals = [line for line in lines if line.family is family]
        if not family.ranked:
            found += rivals
            continue
        marks = standings([{run.config.seed: run.final_accuracy for run in line.runs} for line in rivals])
        found += [dataclasses.replace(line, standing=mark) for line, mark in zip(rivals, marks, strict=True)]
    return found


def _shared(result: RunResult) -> tuple[str, str, str]:
    config = result.config.as_dict()
    rest = {name: value for name, value in config.items() if name not in ("method", "settings", "seed")}
    return result.config.benchmark, result.config.protocol, canonical_json(rest)


def _reading_order(line: Line) -> tuple[int, float, str]:
    accuracy = math.inf if math.isnan(line.accuracy.mean) else -line.accuracy.mean
    return list(Family).index(line.family), accuracy, line.label


def _grouped(results: Iterable[RunResult], key: Callable[[RunResult], tuple[str, ...]]) -> list[list[RunResult]]:
    ordered = sorted(results, key=lambda result: (listing_order(result.config.benchmark), key(result)))
    return [list(members) for _, members in groupby(ordered, key)]
