"""Results side by side: what may be compared in one panel, what is averaged over seeds in one line."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest
from typing import final

from fopng.config import Value, canonical_json
from fopng.result import RunResult
from fopng.scores import Estimate


@final
@dataclass(frozen=True)
class Line:
    """One method with one choice of settings, over its seeds."""

    label: str
    """The method, with the settings in which it differs from another line of the same method."""
    settings: Mapping[str, Value]
    seeds: tuple[int, ...]
    diverged: int
    """How many of the runs ended in numbers that are none."""
    accuracy: Estimate
    forgetting: Estimate
    removed: Estimate
    seconds: Estimate
    curve: tuple[Estimate, ...]
    """`A_1 .. A_T`."""


@final
@dataclass(frozen=True)
class Panel:
    """Runs that differ in method, settings and seed alone. Protocols are never mixed."""

    title: str
    details: tuple[str, ...]
    """The rest of what the runs share, in words."""
    lines: tuple[Line, ...]
    """The most accurate first."""


def summarise(results: Iterable[RunResult]) -> list[Panel]:
    """A panel for each set of runs that can be compared."""
    return [_panel(members) for members in _grouped(results, _shared)]


def _panel(results: Sequence[RunResult]) -> Panel:
    config = results[0].config
    rate = "" if config.first_task_lr is None else f", first task at {config.first_task_lr:g}"
    # What is empty, 0 or no says nothing: all classes, in their order.
    parameters = [f"{name} {_words(value)}" for name, value in sorted(config.benchmark_parameters.items()) if value]
    epochs = "1 epoch" if config.epochs == 1 else f"{config.epochs} epochs"
    details = (
        f"{config.dataset}, {config.scenario}-incremental",
        f"{config.protocol} protocol{rate}",
        *parameters,
        config.model,
        f"{epochs} a task, batches of {config.batch_size}",
        config.dtype,
        *(["part of the training set held out"] if config.validation else []),
    )
    groups = _grouped(results, lambda result: (result.config.method, canonical_json(result.config.settings)))
    lines = sorted((_line(group, results) for group in groups), key=_by_accuracy)
    return Panel(config.benchmark, details, tuple(lines))


def _line(group: Sequence[RunResult], panel: Sequence[RunResult]) -> Line:
    config = group[0].config
    curves = zip_longest(*(result.average_accuracy for result in group))
    return Line(
        label=_label(
            config.method, config.settings, [r.config.settings for r in panel if r.config.method == config.method]
        ),
        settings=config.settings,
        seeds=tuple(sorted(result.config.seed for result in group)),
        diverged=sum(result.status == "diverged" for result in group),
        accuracy=Estimate.of([result.final_accuracy for result in group]),
        forgetting=Estimate.of([result.forgetting for result in group]),
        removed=Estimate.of([result.removed_fraction for result in group]),
        seconds=Estimate.of([result.seconds for result in group]),
        curve=tuple(Estimate.of(values) for values in curves),
    )


def _label(method: str, settings: Mapping[str, Value], others: Sequence[Mapping[str, Value]]) -> str:
    names = sorted({name for other in others for name in other})
    differing = [name for name in names if len({canonical_json(other.get(name)) for other in others}) > 1]
    words = ", ".join(f"{name}={_shown(settings.get(name))}" for name in differing)
    return f"{method} ({words})" if words else method


def _words(value: Value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(map(_shown, value)) if isinstance(value, list | tuple) else _shown(value)


def _shown(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _shared(result: RunResult) -> tuple[str, str, str]:
    config = result.config.as_dict()
    rest = {name: value for name, value in config.items() if name not in ("method", "settings", "seed")}
    return result.config.benchmark, result.config.protocol, canonical_json(rest)


def _by_accuracy(line: Line) -> tuple[float, str]:
    return math.inf if math.isnan(line.accuracy.mean) else -line.accuracy.mean, line.label


def _grouped(results: Iterable[RunResult], key: Callable[[RunResult], tuple[str, ...]]) -> list[list[RunResult]]:
    return [list(members) for _, members in groupby(sorted(results, key=key), key)]
