"""`fopng run`: one method on one benchmark."""

from __future__ import annotations

from fopng.cli.options import BenchmarkArgument, MethodArgument
from fopng.cli.run_options import RunOptions, takes


@takes(RunOptions)
def run(benchmark: BenchmarkArgument, method: MethodArgument, options: RunOptions) -> None:
    """Run one method on a benchmark. A run that was interrupted goes on; one that is finished is not done again."""
    from fopng.cli.results import say, show_results
    from fopng.cli.work import do_runs

    results = do_runs(options.request(benchmark, [method]).configurations(), options.means())
    show_results(results, as_json=options.as_json, out=options.out)
    if not options.as_json:
        say(f"Runs in {options.out}. A page from them: fopng report {options.out}")
