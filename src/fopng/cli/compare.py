"""`fopng compare`: several methods on one benchmark, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fopng.cli.options import BenchmarkArgument, MethodsArgument
from fopng.cli.run_options import RunOptions, takes

PageOption = Annotated[
    Path | None,
    typer.Option("--page", help="Where the page goes; into the folder of the runs when left out.", show_default=False),
]


@takes(RunOptions)
def compare(
    benchmark: BenchmarkArgument, options: RunOptions, methods: MethodsArgument = None, page: PageOption = None
) -> None:
    """Run several methods on a benchmark with the same tasks, weights and data order: a table and a page."""
    from fopng.cli.results import show_results, write_page
    from fopng.cli.work import do_runs
    from fopng.lab.runs.hyperparameters import paper_methods
    from fopng.lab.runs.store import folder_name

    request = options.request(benchmark, methods or paper_methods())
    results = do_runs(request.configurations(), options.means())
    show_results(results, as_json=options.as_json, out=options.out)
    target = page or options.out / f"{folder_name(benchmark)}.html"
    write_page(target, results, title=f"Methods on {benchmark}")
