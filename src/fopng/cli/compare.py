"""`fopng compare`: several methods on one benchmark, side by side."""

from __future__ import annotations

from fopng.cli.commands import Compare
from fopng.cli.planned import show_plan
from fopng.cli.results import show_results, write_page
from fopng.cli.work import configurations_of, do_runs, runner_of
from fopng.lab.runs.hyperparameters import paper_methods
from fopng.lab.runs.store import folder_name


def compare(options: Compare) -> None:
    """Do the runs, print their scores and write the page."""
    configs = configurations_of(options, options.benchmark, options.methods or paper_methods())
    if options.dry_run:
        show_plan(configs, options)
        return
    results = do_runs(configs, runner_of(options), options.comparison, again=options.again)
    show_results(results, as_json=options.as_json, out=options.out)
    target = options.page or options.out / f"{folder_name(options.benchmark)}.html"
    write_page(target, results, title=f"Methods on {options.benchmark}")
