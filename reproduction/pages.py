"""The project's published results: a digest in Markdown, condition beside condition, made from committed files alone."""

from collections.abc import Iterable, Sequence

from fopng.lab.analysis.experiments import Comparison, Experiments, sort_out
from fopng.lab.report.claims import Finding, Verdict
from fopng.lab.report.lines import labelled
from fopng.lab.report.markdown import escaped, margined, table
from fopng.lab.report.words import listed, percent, shown
from fopng.lab.runs.config import canonical_json, differing
from fopng.lab.runs.findings import Ablation, Response, Step, final_by_seed, rank
from fopng.lab.runs.result import RunResult
from fopng.lab.runs.scores import Estimate
from fopng.optim.registry import METHODS
from reproduction.claims import NO_RUNS, judge

Telling = tuple[str, str]
"""A method, and a setting that tells its lines apart."""

HEADING = """# Results

Made by `make results` from the files under `reproduction/results/`; a test makes it again and compares.
`fopng report reproduction/results` makes the page with every figure, the runs and the command behind each number;
how to read a verdict stands in [experiments](experiments.md)."""

COMMANDS = """## Commands

    fopng paper --protocol both --out runs              the paper's methods and the ablations (on CIFAR with --seeds 3)
    fopng run BENCHMARK METHOD --seeds 5 --out runs     another method as it is
    fopng sweep reproduction/experiments/methods.toml --out runs     settings selected on validation, then measured on test
    fopng export runs reproduction/results              the result files that are committed
    make results                                        this page"""


def pages(results: Iterable[RunResult]) -> dict[str, str]:
    """The text of every published page, by its name below the folder of the documentation."""
    return {"results.md": digest(results)}


def digest(results: Iterable[RunResult]) -> str:
    """The Markdown text for these results."""
    results = list(results)
    experiments = sort_out(results)
    blocks = [HEADING, *_claims(judge(results)), *_comparisons(experiments), *_choices(experiments.responses)]
    return "\n\n".join([*blocks, *_ablations(experiments.ablations), COMMANDS]) + "\n"


def method_results(results: Iterable[RunResult], method: str) -> str:
    """A table of what a method reached, a row a comparison, beside the best of those that keep as little; empty without any."""
    rows = []
    for comparison in sort_out(results).comparisons:
        rivals = [result for result in comparison.results if _keeps_data(result.config.method) == _keeps_data(method)]
        lines = _by_label(rivals)
        own = {label: runs for label, runs in lines.items() if runs[0].config.method == method}
        best, leading = max(lines.items(), key=lambda line: _mean_of(line[1]), default=("", []))
        where = escaped(f"{comparison.results[0].config.benchmark}, {_condition(comparison)}")
        rows += [
            [where, escaped(label), _cell(runs), f"{escaped(best)}: {_cell(leading)}"] for label, runs in own.items()
        ]
    columns = ["benchmark", "line", "accuracy, % (forgetting)", "highest mean"]
    return table(columns, rows) if rows else ""


def _keeps_data(method: str) -> bool:
    return method in METHODS and METHODS[method].about.keeps_data


def _mean_of(runs: Sequence[RunResult]) -> float:
    mean = Estimate.of(list(final_by_seed(runs).values())).mean
    return mean if mean == mean else -1.0


def _claims(findings: Sequence[Finding]) -> list[str]:
    conditions = sorted({finding.condition for finding in findings} - {NO_RUNS})
    by_claim: dict[str, dict[str, Finding]] = {}
    for finding in findings:
        by_claim.setdefault(finding.claim, {})[finding.condition] = finding
    rows = []
    for claim, found in by_claim.items():
        any_of = next(iter(found.values()))
        verdicts = [found[each].verdict.value if each in found else "" for each in conditions]
        rows.append([f'"{any_of.sentence}"<br>{any_of.reading} *({claim})*', *verdicts])
    judged = [finding.verdict for finding in findings if finding.condition != NO_RUNS]
    counts = [f"{judged.count(verdict)} {verdict.value}" for verdict in Verdict]
    return [
        "## What the paper says, and what the runs say",
        f"Sentences of the paper, each with how it is read, under each condition: {', '.join(counts)}. "
        "An empty cell: no such runs. On CIFAR both protocols are the same runs.",
        table(["claim", *map(escaped, conditions)], rows),
    ]


def _comparisons(experiments: Experiments) -> list[str]:
    blocks = ["## Final accuracy"]
    by_benchmark: dict[str, list[Comparison]] = {}
    for comparison in experiments.comparisons:
        by_benchmark.setdefault(comparison.results[0].config.benchmark, []).append(comparison)
    for benchmark, comparisons in by_benchmark.items():
        lines: dict[str, dict[str, str]] = {}
        names: dict[str, str] = {}
        conditions = [_condition(comparison) for comparison in comparisons]
        # A method that stands there in two forms under one condition is told apart under all.
        told = [name for comparison in comparisons for name in _telling(comparison.results)]
        for condition, comparison in zip(conditions, comparisons, strict=True):
            for label, runs in _by_label(comparison.results, told).items():
                lines.setdefault(label, {})[condition] = _cell(runs)
                names[label] = escaped(label) + (", *keeps samples*" if _keeps_data(runs[0].config.method) else "")
        rows = [[names[label], *(found.get(each, "") for each in conditions)] for label, found in lines.items()]
        blocks += [f"### {escaped(benchmark)}", table(["method", *map(escaped, conditions)], rows)]
    blocks.append(
        "Mean test accuracy over all tasks after the last one, in percent, with the half width of the 95 % interval over seeds "
        "(Student's t) and the forgetting in brackets. Under the paper's settings methods that it does not have are not tuned: "
        "they have its values of a kindred method (`paper.toml`), and their own defaults for the rest. "
        "How those of `fopng-k` were chosen: [measured](kronecker-study.md)."
    )
    return blocks


def _condition(comparison: Comparison) -> str:
    config = comparison.results[0].config
    seeds = len({result.config.seed for result in comparison.results})
    return f"{comparison.condition}, {config.epochs} epochs, {seeds} seeds"


def _by_label(results: Sequence[RunResult], told: Sequence[Telling] = ()) -> dict[str, list[RunResult]]:
    """The runs of each method; where it was run with several settings, of each of them.

    Args:
        results: the runs of a comparison.
        told: settings by which a method is told apart whether they differ here or not.
    """
    telling = {*_telling(results), *told}
    order = [*METHODS, *sorted({result.config.method for result in results} - set(METHODS))]
    found: dict[str, list[RunResult]] = {}
    for run in sorted(results, key=lambda run: (order.index(run.config.method), canonical_json(run.config.settings))):
        names = sorted(name for method, name in telling if method == run.config.method)
        found.setdefault(labelled(run.config.method, run.config.settings, names), []).append(run)
    return found


def _telling(results: Sequence[RunResult]) -> list[Telling]:
    """In which settings the runs of a method differ."""
    methods: dict[str, list[RunResult]] = {}
    for result in results:
        methods.setdefault(result.config.method, []).append(result)
    return [
        (method, name) for method, runs in methods.items() for name in differing([run.config.settings for run in runs])
    ]


def _cell(runs: Sequence[RunResult]) -> str:
    forgetting = Estimate.of([run.forgetting for run in runs])
    diverged = sum(run.status == "diverged" for run in runs)
    lost = f", {diverged} diverged" if diverged else ""
    return f"{margined(Estimate.of(list(final_by_seed(runs).values())))} ({percent(forgetting)}{lost})"


def _choices(responses: Sequence[Response]) -> list[str]:
    if not responses:
        return []
    rows = [
        [
            escaped(f"{response.benchmark} ({response.protocol})"),
            escaped(response.method),
            escaped("nothing" if response.chosen is None else listed(response.chosen.settings)),
            "" if response.chosen is None else percent(response.chosen.accuracy),
            str(len(response.points)),
            escaped(" ".join(response.notes)),
        ]
        for response in responses
    ]
    columns = ["benchmark", "method", "chosen", "accuracy on validation, %", "points", "notes"]
    return ["## Settings selected on validation", table(columns, rows)]


def _ablations(ablations: Sequence[Ablation]) -> list[str]:
    settings: dict[str, list[Ablation]] = {}
    for ablation in ablations:
        settings.setdefault(ablation.setting, []).append(ablation)
    blocks = ["## Ablations"] if settings else []
    for setting, members in settings.items():
        values = {shown(step.value): step.value for ablation in members for step in ablation.steps}
        found = [{shown(step.value): step for step in ablation.steps} for ablation in members]
        ordered = sorted(values, key=lambda word: rank(values[word]))
        rows = [[word, *(_step(steps.get(word)) for steps in found)] for word in ordered]
        heads = [f"{a.benchmark}, {a.method}, {a.protocol}; paper: {shown(a.paper_value)}" for a in members]
        blocks += [f"### {setting}", table([escaped(setting), *map(escaped, heads)], rows)]
    return blocks


def _step(step: Step | None) -> str:
    return "" if step is None else margined(step.accuracy)
