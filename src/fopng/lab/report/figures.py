"""Which figures a report draws of a comparison, a sweep or an ablation."""

import math
from collections.abc import Sequence

from fopng.lab.report.charts import Bars, Chart, Curves, Scatter, Series, Spot
from fopng.lab.report.families import Family
from fopng.lab.report.scales import Categories, Linear, scale_of
from fopng.lab.report.summary import Panel
from fopng.lab.report.variations import Variation
from fopng.lab.report.words import slug
from fopng.lab.runs.config import canonical_json
from fopng.lab.runs.findings import rank
from fopng.lab.runs.scores import Estimate


def charts_of(panel: Panel) -> list[Chart]:
    """Every figure of a panel that there are numbers for: the accuracy first."""
    drawn = [accuracy_curves(panel), learning_scatter(panel), removed_curves(panel), *cost_bars(panel)]
    return [chart for chart in drawn if chart is not None]


def accuracy_curves(panel: Panel) -> Curves | None:
    """`A_k` after each task, with 68 % bands over seeds, as in the paper's figures."""
    return _over_tasks(
        panel,
        [line.curve for line in panel.lines],
        name="accuracy",
        title="Mean accuracy over the tasks seen, after each task",
        x="tasks learnt",
        y="mean accuracy, %",
        note=f"Bands hold 68 % over seeds.{_about_markers(panel)}",
    )


def removed_curves(panel: Panel) -> Curves | None:
    """The removed fraction while each task was learnt."""
    return _over_tasks(
        panel,
        [line.removed_by_task for line in panel.lines],
        name="removed",
        title="Share of the gradient that the projection removes",
        x="task being learnt",
        y="removed, %",
        note="Methods that project on something: the length of what is taken away, over that of the gradient. It can be more than "
        "100 %, where directions that are orthogonal in the Fisher metric are not in the plain one. Bands hold 68 % over seeds.",
        top=math.inf,
    )


def learning_scatter(panel: Panel) -> Scatter | None:
    """Forgetting against learning, with the front of each family: fewer forgotten, more learnt."""
    spots = [Spot(line, line.forgetting, line.learning) for line in panel.lines]
    spots = [spot for spot in spots if spot.x.count and spot.y.count]
    if not spots:
        return None
    fronts = [pareto_front([spot for spot in spots if spot.line.family is family]) for family, _ in panel.families]
    across = [each for spot in spots for each in (100 * spot.x.mean, *spot.ends(0.68)[0])]
    up = [each for spot in spots for each in (100 * spot.y.mean, *spot.ends(0.68)[1])]
    return Scatter(
        "learning",
        "Learning against forgetting",
        Linear.around("forgetting, %", across, floor=-100, top=100),
        Linear.around("accuracy when just learnt, %", up, floor=0, top=100),
        tuple(spots),
        tuple(tuple(front) for front in fronts if len(front) > 1),
        0.68,
        "Up and to the left is better; markers as in the figure of the mean accuracy. The stepped line joins the methods "
        "of a family that no other beats in both "
        f"(of all of them, also those switched off). Whiskers hold 68 %, cut where no accuracy can be.{_about_markers(panel)}",
    )


def pareto_front(spots: Sequence[Spot]) -> list[Spot]:
    """Those that no other forgets less and learns more than, the least forgetting first."""
    ordered = sorted(spots, key=lambda spot: (spot.x.mean, -spot.y.mean))
    front: list[Spot] = []
    for spot in ordered:
        if not front or spot.y.mean > front[-1].y.mean:
            front.append(spot)
    return front


def cost_bars(panel: Panel) -> list[Bars]:
    """Time and memory of a run."""
    kinds = (
        ("seconds", "Time of a run, seconds", "seconds", 1.0, [line.seconds for line in panel.lines]),
        ("memory", "Peak memory of a run, megabytes", "megabytes", 1e6, [line.memory for line in panel.lines]),
    )
    found = []
    for name, title, unit, divisor, estimates in kinds:
        bars = [
            (line, _scaled(estimate, divisor))
            for line, estimate in zip(panel.lines, estimates, strict=True)
            if estimate.count and estimate.mean > 0
        ]
        if bars:
            top = max(estimate.mean for _, estimate in bars)
            note = "Means over seeds; of runs that were done side by side, each one's share."
            found.append(Bars(name, title, Linear(unit, 0.0, top), tuple(bars), note))
    return found


def variation_curves(variations: Sequence[Variation], part: str, note: str) -> list[Curves]:
    """One figure for each setting that was varied, with 95 % bands.

    Args:
        variations: of several methods and settings.
        part: what the accuracy was measured on.
        note: how to read the figures.
    """
    names = sorted({variation.setting for variation in variations})
    files = [slug(name) for name in names]
    # Two settings whose names come to the same for files are numbered.
    suffixes = [f"-{before}" if (before := files[:place].count(file)) else "" for place, file in enumerate(files)]
    return [
        _response(f"response-{file}{suffix}", [each for each in variations if each.setting == name], part, note)
        for name, file, suffix in zip(names, files, suffixes, strict=True)
    ]


def _response(name: str, variations: Sequence[Variation], part: str, note: str) -> Curves:
    setting = variations[0].setting
    values = {canonical_json(answer.value): answer.value for each in variations for answer in each.answers}
    series = tuple(
        Series(
            each.answers[0].line,
            each.label,
            tuple(answer.value for answer in each.answers),
            tuple(answer.accuracy for answer in each.answers),
            tuple(answer.line for answer in each.answers),
        )
        for each in variations
    )
    papers = {canonical_json(value): value for each in variations for value in each.papers}
    return Curves(
        name,
        f"Response to {setting}",
        scale_of(setting, sorted(values.values(), key=rank)),
        _percent_axis(f"final {part} accuracy, %", series, 0.95),
        series,
        0.95,
        note,
        tuple(value for text, value in papers.items() if text in values),
    )


def _over_tasks(
    panel: Panel,
    rows: Sequence[tuple[Estimate, ...]],
    *,
    name: str,
    title: str,
    x: str,
    y: str,
    note: str,
    top: float = 100.0,
) -> Curves | None:
    series = tuple(
        Series(line, line.label, tuple(range(1, len(row) + 1)), row)
        for line, row in zip(panel.lines, rows, strict=True)
        if any(estimate.count for estimate in row)
    )
    if not series:
        return None
    tasks = max(len(each.values) for each in series)
    # One task alone still needs an axis with two ends.
    axis = Linear(x, 1.0, float(tasks), whole=True) if tasks > 1 else Categories(x, (1,))
    return Curves(name, title, axis, _percent_axis(y, series, 0.68, top), series, 0.68, note)


def _percent_axis(label: str, series: Sequence[Series], confidence: float, top: float = 100.0) -> Linear:
    ends = [end for each in series for _, *pair in each.band(confidence) for end in pair]
    means = [mean for each in series for _, mean in each.points]
    return Linear.around(label, [*means, *ends], floor=0, top=top)


def _about_markers(panel: Panel) -> str:
    full = [line.family is Family.WITHOUT_DATA for line in panel.lines]
    return " Full markers: methods that keep no data; hollow ones: all others." if any(full) and not all(full) else ""


def _scaled(estimate: Estimate, divisor: float) -> Estimate:
    return Estimate(estimate.mean / divisor, estimate.deviation / divisor, estimate.count, estimate.missing)
