"""Sweeps and ablations, section by section: the methods that were varied on one benchmark under one protocol."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar, final

from fopng.lab.benchmarks.registry import listing_order
from fopng.lab.report.lines import Line, label_of, labelled
from fopng.lab.report.summary import details_of
from fopng.lab.report.words import shown
from fopng.lab.runs.config import Value, canonical_json
from fopng.lab.runs.findings import Ablation, Response
from fopng.lab.runs.result import RunResult
from fopng.lab.runs.scores import Estimate


@final
@dataclass(frozen=True)
class Answer:
    """What one value of a setting led to."""

    value: Value
    accuracy: Estimate
    line: Line


@final
@dataclass(frozen=True)
class Variation:
    """The accuracy of one method over the values of one setting."""

    setting: str
    label: str
    """The method, with what tells it from another variation of the same."""
    answers: tuple[Answer, ...]
    """In rising order."""
    papers: tuple[Value, ...] = ()
    """The value that the paper uses, where the values are an ablation."""


@final
@dataclass(frozen=True)
class Cell:
    """Two settings together, tried on held-out data."""

    accuracy: Estimate
    line: Line
    refused: bool
    chosen: bool


@final
@dataclass(frozen=True)
class Grid:
    """The accuracy of one method over the values of two settings."""

    label: str
    """The method, with the values of all other settings that vary."""
    method: str
    down: str
    """The setting with a row a value."""
    across: str
    rows: tuple[Value, ...]
    """In rising order."""
    columns: tuple[Value, ...]
    cells: tuple[tuple[Cell | None, ...], ...]
    """None where the two were not tried together."""


@final
@dataclass(frozen=True)
class Choice:
    """What a sweep chose for one method."""

    response: Response
    lines: tuple[Line, ...]
    """One a point."""

    @property
    def chosen(self) -> Line | None:
        """The line of the choice, where there is one."""
        points = zip(self.response.points, self.lines, strict=True)
        return next((line for point, line in points if point is self.response.chosen), None)

    @property
    def grids(self) -> list[Grid]:
        """Over the two settings with the most values, a grid for each choice of the others.

        With three settings or more, only those of which more than half of the pairs were tried, and with them the one of the
        choice: a drawn search has as many choices of the others as points, and none.
        """
        response = self.response
        if len(response.names) < 2:
            return []
        values = {name: [value for value, _ in response.profile(name)] for name in response.names}
        down, across, *others = sorted(response.names, key=lambda name: (-len(values[name]), name))
        found: dict[str, dict[str, Cell]] = {}
        for point, line in zip(response.points, self.lines, strict=True):
            label = labelled(response.method, point.settings, others)
            cell = Cell(point.accuracy, line, point.refused is not None, point is response.chosen)
            found.setdefault(label, {})[_place(point.settings.get(down), point.settings.get(across))] = cell
        rows, columns = tuple(values[down]), tuple(values[across])
        full = [label for label, cells in found.items() if not others or 2 * len(cells) > len(rows) * len(columns)]
        return [
            Grid(label, response.method, down, across, rows, columns, _laid_out(rows, columns, cells))
            for label, cells in found.items()
            if label in full or (full and any(cell.chosen for cell in cells.values()))
        ]


def _place(row: Value, column: Value) -> str:
    return canonical_json([row, column])


def _laid_out(
    rows: Iterable[Value], columns: Sequence[Value], cells: Mapping[str, Cell]
) -> tuple[tuple[Cell | None, ...], ...]:
    return tuple(tuple(cells.get(_place(row, column)) for column in columns) for row in rows)


@final
@dataclass(frozen=True)
class Sweep:
    """Settings tried on held-out data."""

    title: str
    condition: str
    details: tuple[str, ...]
    choices: tuple[Choice, ...]

    @property
    def lines(self) -> list[Line]:
        """Every choice of settings that was tried."""
        return [line for choice in self.choices for line in choice.lines]

    @property
    def grids(self) -> list[Grid]:
        """Of the methods of which two settings vary, or more."""
        return [grid for choice in self.choices for grid in choice.grids]

    @property
    def variations(self) -> list[Variation]:
        """For each setting and method, the best that each value allowed."""
        found = []
        for choice in self.choices:
            response = choice.response
            for name in response.names:
                lines = {id(point): line for point, line in zip(response.points, choice.lines, strict=True)}
                answers = [Answer(value, point.accuracy, lines[id(point)]) for value, point in response.profile(name)]
                found.append(Variation(name, response.method, tuple(answers)))
        return found


@final
@dataclass(frozen=True)
class AblationGroup:
    """Settings varied one at a time, measured on test."""

    title: str
    condition: str
    details: tuple[str, ...]
    variations: tuple[Variation, ...]

    @property
    def lines(self) -> list[Line]:
        """Every value that was tried."""
        return [answer.line for variation in self.variations for answer in variation.answers]


def sweeps_of(responses: Iterable[Response]) -> list[Sweep]:
    """The sweeps, those of one benchmark under one protocol together."""
    found = []
    for (benchmark, protocol, details), members in _together(responses, lambda each: each.points[0].results[0]):
        choices = tuple(Choice(response, _lines_of(response)) for response in members)
        found.append(Sweep(benchmark, f"{protocol} protocol", details, choices))
    return found


def ablations_of(ablations: Iterable[Ablation]) -> list[AblationGroup]:
    """The ablations, those on one benchmark under one protocol together."""
    found = []
    for (benchmark, protocol, details), members in _together(ablations, lambda each: each.steps[0].results[0]):
        variations = tuple(_variation(ablation, members) for ablation in members)
        found.append(AblationGroup(benchmark, f"{protocol} protocol", details, variations))
    return found


Varied = TypeVar("Varied", Response, Ablation)
Where = tuple[str, str, tuple[str, ...]]


def _together(varied: Iterable[Varied], run_of: Callable[[Varied], RunResult]) -> list[tuple[Where, list[Varied]]]:
    """Those whose runs share the benchmark, the protocol and all else that a section says of them."""

    def where(each: Varied) -> Where:
        config = run_of(each).config
        return config.benchmark, config.protocol, details_of(config)

    ordered = sorted(varied, key=lambda each: (listing_order(where(each)[0]), where(each)))
    return [(place, list(members)) for place, members in groupby(ordered, where)]


def _lines_of(response: Response) -> tuple[Line, ...]:
    settings = [point.settings for point in response.points]
    return tuple(
        Line.of(label_of(response.method, point.settings, settings), point.results) for point in response.points
    )


def _variation(ablation: Ablation, among: Sequence[Ablation]) -> Variation:
    """Named by the other settings too where the same one was varied around several choices of them."""
    alike = [each for each in among if (each.method, each.setting) == (ablation.method, ablation.setting)]
    label = label_of(ablation.method, _others(ablation), [_others(each) for each in alike])
    answers = [
        Answer(step.value, step.accuracy, Line.of(f"{label}, {ablation.setting}={shown(step.value)}", step.results))
        for step in ablation.steps
    ]
    return Variation(ablation.setting, label, tuple(answers), (ablation.paper_value,))


def _others(ablation: Ablation) -> dict[str, Value]:
    settings = ablation.steps[0].results[0].config.settings
    return {name: value for name, value in settings.items() if name != ablation.setting}
