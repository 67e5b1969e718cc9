"""`fopng ablate`: one setting varied, all others kept; the paper's three ablations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fopng.cli.options import DryRunOption, SeedsOption, complete_benchmarks, complete_methods
from fopng.cli.output import show_json, show_table
from fopng.cli.run_options import RunOptions, takes

if TYPE_CHECKING:
    from fopng.lab.runs.config import RunConfig
    from fopng.lab.runs.findings import Ablation


def complete_ablations(incomplete: str) -> list[str]:
    """Names of ablations, for the shell."""
    from fopng.lab.runs.ablations import ABLATIONS

    return [name for name in ABLATIONS if name.startswith(incomplete)]


@dataclass(frozen=True, kw_only=True)
class AblateOptions(RunOptions):
    """As for a run, with the paper's five seeds."""

    seeds: SeedsOption = "5"


@takes(AblateOptions)
def ablate(
    name: Annotated[
        str,
        typer.Argument(help="lambda, alpha or fisher-samples.", autocompletion=complete_ablations, show_default=False),
    ],
    options: AblateOptions,
    benchmark: Annotated[
        list[str] | None,
        typer.Option(
            "--benchmark",
            help="Can be repeated; split-mnist and rotated-mnist when left out.",
            autocompletion=complete_benchmarks,
            show_default=False,
        ),
    ] = None,
    method: Annotated[
        str, typer.Option("--method", help="Another method with this setting.", autocompletion=complete_methods)
    ] = "fopng",
    values: Annotated[
        str | None,
        typer.Option("--values", metavar="LIST", help="Other values than the paper's, such as 1e-4,1e-3,1e-2."),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option("--page", help="Where the page goes; into the folder of the runs when left out."),
    ] = None,
    dry_run: DryRunOption = False,
) -> None:
    """Vary one setting over the paper's values with all others kept: a table with 95 % bands, and a page."""
    from fopng.cli.results import write_page
    from fopng.cli.work import do_runs, raise_for
    from fopng.lab.analysis.experiments import ablation_of
    from fopng.lab.runs.ablations import BENCHMARKS, ablation_requests, find_ablation

    ablated = find_ablation(name)
    words = [word.strip() for word in (values or "").split(",") if word.strip()]
    requests = [
        request
        for each in benchmark or BENCHMARKS
        for request in ablation_requests(ablated, options.request(each, [method]), words)
    ]
    configs = [config for request in requests for config in request.configurations()]
    if dry_run:
        _show_plan(configs, options)
        return
    results = do_runs(configs, options.means(keep_going=True))
    there = {result.config.key for result in results}
    found = ablation_of(results, ablated.setting)
    _show(found, as_json=options.as_json)
    write_page(page or options.out / f"ablation-{ablated.name}.html", results, title=f"Ablation of {ablated.name}")
    raise_for([config for config in configs if config.key not in there])


def _show_plan(configs: list[RunConfig], options: AblateOptions) -> None:
    from fopng.cli.planned import found_in, show_planned
    from fopng.cli.results import say

    find, asked = found_in(options.out), {config.key: config for config in configs}
    missing = {key: config for key, config in asked.items() if options.again or find(config) is None}
    there = [config for key, config in asked.items() if key not in missing]
    show_planned(there, missing.values(), as_json=options.as_json)
    say(f"{len(missing)} runs to do, {len(there)} there already.")


def _show(found: list[Ablation], *, as_json: bool) -> None:
    from fopng.lab.report.words import margin, percent

    if as_json:
        show_json([ablation.as_dict() for ablation in found])
        return
    columns = ("benchmark", "value", "accuracy %", "95 %", "forgetting %", "seeds")
    rows = []
    for ablation in found:
        for step in ablation.steps:
            value = (
                "full"
                if step.value is None
                else f"{step.value:g}"
                if isinstance(step.value, float)
                else str(step.value)
            )
            marked = f"{value} (paper)" if step.value == ablation.paper_value else value
            diverged = f", {step.diverged} diverged" if step.diverged else ""
            numbers = (percent(step.accuracy), margin(step.accuracy, 0.95), percent(step.forgetting))
            rows.append((ablation.benchmark, marked, *numbers, f"{step.accuracy.count}{diverged}"))
    show_table(columns, rows, right=columns[1:5])
