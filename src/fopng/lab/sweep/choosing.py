"""Choosing settings on the held-out part: the paper's rule, as data."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, final

from fopng.lab.runs.config import canonical_json, differing
from fopng.lab.runs.findings import Point, Response, rank
from fopng.lab.runs.hyperparameters import least_first_task_accuracy
from fopng.lab.runs.result import RunResult
from fopng.optim.settings import SHARE, check_settings


@final
@dataclass(frozen=True, kw_only=True)
class Rule:
    """The highest mean final accuracy on validation, among points whose every run ended and learnt the first task."""

    first_task_at_least: Annotated[
        float, SHARE, "the paper's on MNIST is 0.9: what learns nothing forgets nothing."
    ] = 0.0

    def __post_init__(self) -> None:
        check_settings(self)

    @classmethod
    def of_paper(cls, benchmark: str) -> "Rule":
        """The rule that the paper states for a benchmark.

        >>> Rule.of_paper("split-mnist"), Rule.of_paper("split-cifar10")
        (Rule(first_task_at_least=0.9), Rule(first_task_at_least=0.0))
        """
        return cls(first_task_at_least=least_first_task_accuracy(benchmark))

    def refusal(self, point: Point, seeds: int) -> str | None:
        """Why a point may not be chosen; None when it may."""
        if point.diverged:
            return f"diverged in {point.diverged} of {len(point.results)} runs"
        if len(point.results) < seeds or point.accuracy.missing:
            return f"{len(point.results) - point.accuracy.missing} of {seeds} runs are there"
        if self.first_task_at_least and not point.first_task >= self.first_task_at_least:
            return f"first task below {100 * self.first_task_at_least:g} %"
        return None


def respond(results: Sequence[RunResult], rule: Rule, names: Sequence[str] = ()) -> Response:
    """How one method responded to its settings on one benchmark, and which the rule takes.

    Args:
        results: runs of one method on one benchmark.
        rule: how to choose.
        names: the settings that were varied; those that differ between the runs are, whether named or not.
    """
    config = results[0].config
    points = _points(results, names)
    seeds = len({result.config.seed for result in results})
    points = [dataclasses.replace(point, refused=rule.refusal(point, seeds)) for point in points]
    admitted = [point for point in points if point.refused is None]
    # Points are in rising order of their settings, so that a tie goes to the smaller ones whatever the order of the runs.
    chosen = max(admitted, key=lambda point: point.accuracy.mean, default=None)
    response = Response(
        benchmark=config.benchmark,
        protocol=config.protocol,
        method=config.method,
        points=tuple(points),
        chosen=chosen,
    )
    return dataclasses.replace(response, notes=(*_notes(response), *_edges(response)))


def _points(results: Sequence[RunResult], named: Sequence[str]) -> list[Point]:
    """The settings that differ, in rising order, each with its runs in the order of their seeds."""
    tunable = {result.config.key: result.config.tunable() for result in results}
    names = sorted({*named, *differing(list(tunable.values()))})
    grouped: dict[str, list[RunResult]] = {}
    for result in sorted(results, key=lambda result: result.config.seed):
        grouped.setdefault(canonical_json(tunable[result.config.key]), []).append(result)
    points = []
    for some in grouped.values():
        values = tunable[some[0].config.key]
        points.append(Point(settings={name: values.get(name) for name in names}, results=tuple(some)))
    return sorted(points, key=lambda point: [rank(point.settings[name]) for name in names])


def _notes(response: Response) -> list[str]:
    refused = Counter(point.refused for point in response.points if point.refused is not None)
    notes = [f"{count} of {len(response.points)} points refused: {why}." for why, count in sorted(refused.items())]
    if response.chosen is None:
        return [*notes, "Nothing could be chosen: every point was refused. Widen the grid, or change the rule."]
    best = response.chosen.accuracy.mean
    tied = sum(point.refused is None and point.accuracy.mean == best for point in response.points)
    if tied > 1:
        notes.append(f"{tied} points tie at {100 * best:.2f} %; the one with the smaller settings is taken.")
    return notes


def _edges(response: Response) -> list[str]:
    """A choice at the end of what was tried may not be the best there is; 0 is the end of what can be tried."""
    notes: list[str] = []
    for name in response.names if response.chosen is not None else []:
        assert response.chosen is not None
        values = sorted({v for p in response.points if isinstance(v := p.settings.get(name), int | float)})
        chosen = response.chosen.settings.get(name)
        if len(values) > 2 and chosen in (values[0], values[-1]) and chosen != 0:
            end = "smallest" if chosen == values[0] else "largest"
            notes.append(f"{name} = {chosen:g} is the {end} that was tried.")
    return notes
