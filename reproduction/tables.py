"""The tables of the documentation, in Markdown, from results."""

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from fopng.lab.report.sections import ablations_of
from fopng.lab.report.words import listed, number, shown
from fopng.lab.runs.config import Value, canonical_json, differing
from fopng.lab.runs.findings import Ablation, rank
from fopng.lab.runs.frame import frame
from fopng.lab.runs.result import RunResult
from fopng.lab.runs.scores import Estimate
from fopng.lab.sweep import Rule, respond
from fopng.optim.registry import METHODS
from reproduction.claims import NO_RUNS, judge
from reproduction.claims.finding import Finding, Verdict
from reproduction.groups import Group, groups_of

Results = Sequence[RunResult]


def claims(results: Results) -> str:
    """Each sentence of the paper with its verdict, a column a condition."""
    findings = judge(results)
    judged = [finding.verdict for finding in findings if finding.condition != NO_RUNS]
    counts = ", ".join(f"{judged.count(verdict)} {verdict.value}" for verdict in Verdict)
    rows = [(_sentence(finding), finding.condition, finding.verdict.value) for finding in findings]
    conditions = sorted({finding.condition for finding in findings} - {NO_RUNS})
    return (
        f"Sentences of the paper, each with how it is read, under each condition: {counts}. "
        "An empty cell: no such runs. On CIFAR both protocols are the same runs.\n\n"
        + _pivot("claim", rows, conditions)
    )


def _sentence(finding: Finding) -> str:
    return f'"{finding.sentence}"<br>{finding.reading} *({finding.claim})*'


def comparisons(results: Results) -> str:
    """The final accuracy of every method on each benchmark, a column a condition."""
    blocks, benchmarks = [], dict[str, list[Group]]()
    for group in groups_of(results):
        if group.kind in ("comparison", "chosen"):
            benchmarks.setdefault(group.config.benchmark, []).append(group)
    for benchmark, groups in benchmarks.items():
        # A method that stands there in two forms under one condition is told apart under all.
        telling = {name for group in groups for name in _telling(group.runs)}
        rows = [
            (f"{label}{', *keeps samples*' if _keeps_data(label.split()[0]) else ''}", _condition(group), cell)
            for group in groups
            for label, cell in _cells(_labelled(group.runs, telling)).items()
        ]
        blocks += [f"### {benchmark}", _pivot("method", rows, [_condition(group) for group in groups])]
    return "\n\n".join(blocks)


def _condition(group: Group) -> str:
    seeds = len({run.config.seed for run in group.runs})
    return f"{group.condition}, {group.config.epochs} epochs, {seeds} seeds"


def _telling(runs: Results) -> set[tuple[str, str]]:
    """In which settings the runs of a method differ."""
    methods = {run.config.method for run in runs}
    settings = {method: [run.config.settings for run in runs if run.config.method == method] for method in methods}
    return {(method, name) for method, some in settings.items() for name in differing(some)}


def _labelled(runs: Results, telling: Iterable[tuple[str, str]]) -> pd.DataFrame:
    """A row a run, in the order of methods and settings, with the label that tells it apart."""
    order, telling = [*METHODS], {*_telling(runs), *telling}
    runs = sorted(runs, key=lambda r: (order.index(r.config.method), canonical_json(r.config.settings)))
    names = [sorted(name for method, name in telling if method == run.config.method) for run in runs]
    labels = [label(run.config.method, run.config.settings, some) for run, some in zip(runs, names, strict=True)]
    return frame(runs).assign(label=labels)


def label(method: str, settings: Mapping[str, Value], names: Iterable[str]) -> str:
    """A method with those of its settings that tell it apart."""
    told = listed({name: settings[name] for name in names if name in settings})
    return f"{method} ({told})" if told else method


def _cells(runs: pd.DataFrame) -> dict[str, str]:
    """The accuracy of each label with its interval, and the forgetting."""
    return {str(label): _cell(some) for label, some in runs.groupby("label", sort=False)}


def _cell(runs: pd.DataFrame) -> str:
    diverged = int((runs["status"] == "diverged").sum())
    lost = f", {diverged} diverged" if diverged else ""
    return f"{_margined(_estimate(runs))} ({number(100 * _estimate(runs, 'forgetting').mean)}{lost})"


def _estimate(runs: pd.DataFrame, score: str = "final_accuracy") -> Estimate:
    return Estimate.of(list(runs[score]))


def method_results(results: Results, method: str) -> str:
    """What a method reached, a row a comparison, beside the best of those that keep as little; empty without any."""
    rows = []
    for group in groups_of(results):
        rivals = [run for run in group.runs if _keeps_data(run.config.method) == _keeps_data(method)]
        if group.kind not in ("comparison", "chosen") or method not in {run.config.method for run in rivals}:
            continue
        runs = _labelled(rivals, ())
        cells, means = _cells(runs), runs.groupby("label", sort=False)["final_accuracy"].mean()
        own = runs.loc[runs["method"] == method, "label"].unique()
        where = f"{group.config.benchmark}, {_condition(group)}"
        rows += [[where, name, cells[name], f"{means.idxmax()}: {cells[str(means.idxmax())]}"] for name in own]
    return table(["benchmark", "line", "accuracy, % (forgetting)", "highest mean"], rows) if rows else ""


def _keeps_data(method: str) -> bool:
    return method in METHODS and METHODS[method].about.keeps_data


def choices(results: Results) -> str:
    """What each sweep chose."""
    sweeps = [respond(g.runs, Rule.of_paper(g.config.benchmark)) for g in groups_of(results) if g.kind == "sweep"]
    rows = [
        [
            f"{sweep.benchmark} ({sweep.protocol})",
            sweep.method,
            "nothing" if sweep.chosen is None else listed(sweep.chosen.settings),
            "" if sweep.chosen is None else number(100 * sweep.chosen.accuracy.mean),
            str(len(sweep.points)),
            " ".join(sweep.notes),
        ]
        for sweep in sweeps
    ]
    return table(["benchmark", "method", "chosen", "accuracy on validation, %", "points", "notes"], rows)


def ablations(results: Results) -> str:
    """The accuracy with each value of every ablated setting, a column a benchmark."""
    settings: dict[str, list[Ablation]] = {}
    for group in groups_of(results):
        if group.kind == "ablation":
            settings.setdefault(group.name, []).extend(ablations_of(group.runs, group.name))
    blocks = []
    for setting, members in settings.items():
        heads = [f"{a.benchmark}, {a.method}, {a.protocol}; paper: {shown(a.paper_value)}" for a in members]
        steps = sorted(
            ((step, head) for head, a in zip(heads, members, strict=True) for step in a.steps),
            key=lambda found: rank(found[0].value),
        )
        rows = [(shown(step.value), head, _margined(step.accuracy)) for step, head in steps]
        blocks += [f"### {setting}", _pivot(setting, rows, heads)]
    return "\n\n".join(blocks)


def short(estimate: Estimate) -> str:
    """A mean in percent with its interval, to a tenth; empty where there is none."""
    return f"{100 * estimate.mean:.1f} ± {100 * estimate.half_width(0.95):.1f}" if estimate.count else ""


def _margined(estimate: Estimate) -> str:
    margin = f" ± {100 * estimate.half_width(0.95):.2f}" if estimate.count > 1 else ""
    return f"{number(100 * estimate.mean)}{margin}"


def _pivot(corner: str, cells: Iterable[tuple[str, str, str]], columns: Sequence[str]) -> str:
    """A table from (row, column, text), rows in the order of their first cells."""
    rows: dict[str, dict[str, str]] = {}
    for row, column, text in cells:
        rows.setdefault(row, {})[column] = text
    return table([corner, *columns], [[row, *(found.get(each, "") for each in columns)] for row, found in rows.items()])


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], numbers: str = "---:") -> str:
    """A Markdown table whose first column is words."""
    lines = [columns, ["---", *[numbers] * (len(columns) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cell.replace('_', chr(92) + '_') for cell in line)} |" for line in lines)
