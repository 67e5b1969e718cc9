"""What the charts of a report are drawn from: a data frame for each, by what sets it apart."""

from collections.abc import Callable, Iterable, Mapping

import pandas as pd

from fopng.lab.report import words
from fopng.lab.report.sections import Section, label_of
from fopng.lab.report.tables import over_seeds
from fopng.lab.runs import scores
from fopng.lab.runs.config import Value
from fopng.lab.runs.findings import Point, rank
from fopng.lab.runs.result import RunResult
from fopng.lab.runs.scores import Estimate

Frames = Mapping[str, pd.DataFrame]
"""What the charts of one kind show in a section: a data frame for each, by what sets it apart."""


def spots(section: Section) -> Frames:
    """Forgetting and learning of each line."""
    by = ["label", "method", "family"]
    forgotten, learnt = (estimates(section.frame, column, by) for column in ("forgetting", "learning_accuracy"))
    return {"": forgotten.merge(learnt, on=by, suffixes=("", "_learnt"))}


def mean_of(column: str, times: float) -> Callable[[Section], Frames]:
    """The mean of a score for each line."""
    return lambda section: {"": estimates(section.frame, column, ["label", "method"], times)}


def estimates(rows: pd.DataFrame, column: str, by: list[str], times: float = 100) -> pd.DataFrame:
    """Means over seeds, in percent, with the interval that holds 68 %; what has no number is left out."""
    found = over_seeds(rows, column, by)
    table = found.index.to_frame(index=False)
    table["mean"] = [times * each.mean for each in found]
    half = pd.Series([times * each.half_width(0.68) for each in found], dtype="float64").fillna(0.0)
    table["low"], table["high"] = table["mean"] - half, table["mean"] + half
    table["interval"] = [interval(each, times) for each in found]
    table["seeds"] = [each.count for each in found]
    return table[table["seeds"] > 0].round({"mean": 4, "low": 4, "high": 4})


def interval(estimate: Estimate, times: float = 100) -> str:
    """The 95 % interval in words, for a tooltip."""
    return f"± {times * estimate.half_width(0.95):.2f}" if estimate.count > 1 else "one seed"


def by_task(
    section: Section, values: Callable[[RunResult], Iterable[float | None]], times: float = 100
) -> pd.DataFrame:
    """A row for each line and task, of one number a run and task."""
    rows = [
        {"label": label, "method": run.config.method, "family": family, "task": task, "value": value}
        for (family, label), keys in section.frame.groupby(["family", "label"], sort=False)["key"]
        for run in section.lines[label]
        for task, value in enumerate(values(run), start=1)
    ]
    columns = ["label", "method", "family", "task", "value"]
    return estimates(pd.DataFrame(rows, columns=columns), "value", ["label", "method", "family", "task"], times)


def curves(section: Section) -> Frames:
    """The mean accuracy over the tasks seen, after each task."""
    return {"": by_task(section, lambda run: run.average_accuracy)}


def measured(section: Section) -> Frames:
    """What methods measured while they learnt each task, by name."""
    apart = ("lost_measured", "lost_worst")  # shown beside what was really lost
    names = dict.fromkeys(name for run in section.results for name in run.measured if name not in apart)
    return {name.replace("_", " "): by_task(section, lambda run: run.measured.get(name, ())) for name in names}  # noqa: B023


def lost(section: Section) -> Frames:
    """What old tasks had really lost after each task, what the method measured of it, and what it was asked for."""
    told = [_quantity(section, *which) for which in QUANTITIES_LOST if which[0] != "asked"]
    rows = pd.concat(some) if (some := [table for table in told if len(table)]) else told[0]
    asked = _quantity(section, "asked", "mean")
    asked = asked[asked["label"].isin(rows["label"])]
    return {"": pd.concat([rows, asked]) if len(asked) else rows}


def _quantity(section: Section, what: str, of: str) -> pd.DataFrame:
    """One of what is told of a loss, after each task that has old ones."""
    table = by_task(section, QUANTITIES_LOST[what, of], times=1).assign(what=what, of=of)
    return table[table["task"] > 1]


QUANTITIES_LOST: Mapping[tuple[str, str], Callable[[RunResult], Iterable[float | None]]] = {
    ("really lost", "mean"): lambda run: [scores.mean_lost(rows) for rows in _beginnings(run.lost)],
    ("really lost", "worst"): lambda run: [scores.worst_lost(rows) for rows in _beginnings(run.lost)],
    ("measured", "mean"): lambda run: run.measured.get("lost_measured", ()),
    ("measured", "worst"): lambda run: run.measured.get("lost_worst", ()),
    ("asked", "mean"): lambda run: [_tolerance(run)] * len(run.accuracy),
}
"""What is told of a loss: which number, and whether over all old tasks or of the worst of them."""


def _beginnings(matrix: scores.Matrix | None) -> Iterable[scores.Matrix]:
    """The matrix as it was after each task."""
    return ([row[:task] for row in matrix[:task]] for task in range(1, len(matrix) + 1)) if matrix else ()


def _tolerance(run: RunResult) -> float | None:
    tolerance = run.config.settings.get("tolerance")
    return tolerance if isinstance(tolerance, int | float) else None


def entries(section: Section) -> Frames:
    """The accuracy matrices: a row for each line, task learnt and task measured."""
    rows = [
        {"label": label, "method": run.config.method, "after": after, "on": on, "value": value}
        for label, some in section.lines.items()
        for run in some
        for after, row in enumerate(run.accuracy, start=1)
        for on, value in enumerate(row, start=1)
    ]
    table = pd.DataFrame(rows, columns=["label", "method", "after", "on", "value"])
    return {"": estimates(table, "value", ["label", "method", "after", "on"])}


def responses(section: Section) -> Frames:
    """For each setting of a sweep and each method, the best that each value allowed."""
    rows: dict[str, list[dict[str, object]]] = {}
    for response in section.responses:
        for name in response.names:
            rows.setdefault(name, []).extend(
                {"label": response.method, "method": response.method, "setting": name, **_answer(value, point.accuracy)}
                for value, point in response.profile(name)
            )
    return {name: pd.DataFrame([row for row in rows[name] if row["seeds"]]) for name in sorted(rows)}


def ablated(section: Section) -> Frames:
    """For each setting that was ablated, the accuracy at each of its values."""
    rows: dict[str, list[dict[str, object]]] = {}
    for ablation in section.ablations:
        papers = words.shown(ablation.paper_value)
        rows.setdefault(ablation.setting, []).extend(
            {
                **{"label": ablation.method, "method": ablation.method, "setting": ablation.setting},
                **_answer(step.value, step.accuracy),
                "papers": words.shown(step.value) == papers,
            }
            for step in ablation.steps
        )
    return {name: pd.DataFrame([row for row in rows[name] if row["seeds"]]) for name in sorted(rows)}


def _answer(value: Value, accuracy: Estimate) -> dict[str, object]:
    half = 100 * accuracy.half_width(0.95) if accuracy.count > 1 else 0.0
    mean = 100 * accuracy.mean
    return {
        **{"value": words.shown(value), "number": value if isinstance(value, int | float) else None},
        **{"mean": mean, "low": mean - half, "high": mean + half},
        **{"interval": interval(accuracy), "seeds": accuracy.count},
    }


def pairs(section: Section) -> Frames:
    """For each method of which a sweep varies two settings or more, every pair of the two with the most values.

    With three settings or more, only those choices of the others of which more than half of the pairs were tried, and the
    one of the choice: a drawn search has as many choices of the others as points, and none.
    """
    found: dict[str, pd.DataFrame] = {}
    for response in section.responses:
        if len(response.names) < 2:
            continue
        values = {name: [value for value, _ in response.profile(name)] for name in response.names}
        down, across, *others = sorted(response.names, key=lambda name: (-len(values[name]), name))
        groups: dict[str, list[dict[str, object]]] = {}
        for point in response.points:
            label = label_of(response.method, point.settings, others)
            groups.setdefault(label, []).append(_pair(point, down, across, point is response.chosen))
        size = len(values[down]) * len(values[across])
        full = [label for label, cells in groups.items() if not others or 2 * len(cells) > size]
        for label, cells in groups.items():
            if label in full or (full and any(cell["chosen"] for cell in cells)):
                heads = {"method": response.method, "label": label, "down": down, "across": across}
                found[label] = pd.DataFrame([{**heads, **cell} for cell in cells if cell["seeds"]])
    return found


def _pair(point: Point, down: str, across: str, chosen: bool) -> dict[str, object]:
    mean = 100 * point.accuracy.mean
    text = f"{mean:.1f}" if point.refused is None else f"({mean:.1f})"
    return {
        **{"row": words.shown(point.settings.get(down)), "column": words.shown(point.settings.get(across))},
        **{"row_rank": rank(point.settings.get(down)), "column_rank": rank(point.settings.get(across))},
        **{"mean": mean, "text": text, "interval": interval(point.accuracy), "seeds": point.accuracy.count},
        **{"chosen": chosen, "refused": point.refused or "", "settings": words.listed(point.settings)},
    }
