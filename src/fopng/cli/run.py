"""`fopng run`: one method on one benchmark."""

from __future__ import annotations

from fopng.cli.commands import Run
from fopng.cli.results import say, show_results
from fopng.cli.work import do_runs


def run(options: Run) -> None:
    """Do the runs, and print their scores."""
    results = do_runs(
        options.configurations(options.benchmark, [options.method]),
        options.runner(),
        options.comparison,
        again=options.again,
    )
    show_results(results, as_json=options.as_json, out=options.out)
    if not options.as_json:
        say(f"Runs in {options.out}. A page from them: fopng report {options.out}")
