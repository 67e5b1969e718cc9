"""`fopng compare`: several methods on one benchmark, side by side."""

from __future__ import annotations

import re

from fopng.cli.commands import Compare
from fopng.cli.planned import show_plan
from fopng.cli.results import say, show_results, write_page
from fopng.cli.work import configurations_of, do_runs, runner_of
from fopng.lab.runs.hyperparameters import paper_benchmarks, paper_methods


def compare(options: Compare) -> None:
    """Do the runs, print their scores and write the page."""
    configs = configurations_of(options, options.benchmark, options.methods or paper_methods())
    if options.dry_run:
        show_plan(configs, options)
        return
    if options.benchmark not in paper_benchmarks() and not (options.settings_file or options.assignments):
        say(
            "fopng: the settings are borrowed from the paper's most similar benchmark. A sweep chooses them for this one."
        )
    results = do_runs(configs, runner_of(options), options.comparison, again=options.again)
    show_results(results, as_json=options.as_json, out=options.out)
    target = (
        options.page or options.out / f"{re.sub('[^A-Za-z0-9._-]+', '-', options.benchmark).strip('.-')[:100]}.html"
    )
    write_page(target, results, title=f"Methods on {options.benchmark}")
