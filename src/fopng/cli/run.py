"""`fopng run`: one method on one benchmark."""

from __future__ import annotations

from fopng.cli.commands import Run
from fopng.cli.planned import show_plan
from fopng.cli.results import say, show_results
from fopng.cli.work import configurations_of, do_runs, runner_of


def run(options: Run) -> None:
    """Do the runs, and print their scores."""
    configs = configurations_of(options, options.benchmark, [options.method])
    if options.dry_run:
        show_plan(configs, options)
        return
    results = do_runs(configs, runner_of(options), options.comparison, again=options.again)
    show_results(results, as_json=options.as_json, out=options.out)
    if not options.as_json:
        say(f"Runs in {options.out}. A page from them: fopng report {options.out}")
