"""`fopng ablate`: one setting varied, all others kept; the paper's three ablations."""

from __future__ import annotations

from fopng.cli.commands import Ablate
from fopng.cli.output import show_json, show_table
from fopng.cli.planned import show_plan
from fopng.cli.results import write_page
from fopng.cli.work import configurations_of, do_runs, runner_of
from fopng.lab.report.sections import ablations_of
from fopng.lab.report.tables import percent
from fopng.lab.report.words import shown
from fopng.lab.runs.ablations import BENCHMARKS, ablated_values, find_ablation
from fopng.lab.runs.findings import Ablation
from fopng.lab.schedule.runner import raise_for


def ablate(options: Ablate) -> None:
    """Do the runs, print the table and write the page."""
    ablated = find_ablation(options.name)
    words = [word.strip() for word in (options.values or "").split(",") if word.strip()]
    choices = ablated_values(ablated, words)
    configs = [
        config
        for each in options.benchmark or BENCHMARKS
        for config in configurations_of(options, each, [options.method], choices=choices)
    ]
    if options.dry_run:
        show_plan(configs, options)
        return
    results = do_runs(configs, runner_of(options, keep_going=True), f"ablation/{ablated.setting}", again=options.again)
    there = {result.config.key for result in results}
    found = ablations_of(results, ablated.setting)
    _show(found, as_json=options.as_json)
    target = options.page or options.out / f"ablation-{ablated.name}.html"
    write_page(target, results, title=f"Ablation of {ablated.name}")
    raise_for([config for config in configs if config.key not in there])


def _show(found: list[Ablation], *, as_json: bool) -> None:
    if as_json:
        show_json([ablation.as_dict() for ablation in found])
        return
    columns = ("benchmark", "value", "accuracy %", "95 %", "forgetting %", "seeds")
    rows = []
    for ablation in found:
        for step in ablation.steps:
            value = "full" if step.value is None else shown(step.value)
            marked = f"{value} (paper)" if step.value == ablation.paper_value else value
            diverged = f", {step.diverged} diverged" if step.diverged else ""
            accuracy, forgetting = percent(step.accuracy), percent(step.forgetting)
            numbers = (accuracy.text, accuracy.margin, forgetting.text)
            rows.append((ablation.benchmark, marked, *numbers, f"{step.accuracy.count}{diverged}"))
    show_table(columns, rows, right=columns[1:5])
