"""`fopng export` and `fopng publish`: results as small files to commit, and the project's pages made from them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fopng.cli.options import Protocol, complete_benchmarks, complete_methods
from fopng.cli.output import JsonOption, show_json


def export(
    runs: Annotated[Path, typer.Argument(help="The folder of the runs.")],
    target: Annotated[Path, typer.Argument(help="The folder that the files go into.")],
    benchmark: Annotated[
        list[str] | None,
        typer.Option("--benchmark", help="Only this one. Can be repeated.", autocompletion=complete_benchmarks),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option("--method", help="Only this one. Can be repeated.", autocompletion=complete_methods),
    ] = None,
    protocol: Annotated[Protocol | None, typer.Option("--protocol", help="Only this one.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Write results into a few small files, beside what is there already: a run that is new replaces an old one."""
    from fopng.cli.results import no_finished_runs, say_written
    from fopng.export import write_bundles
    from fopng.store import load_results, selection

    keeps = selection(benchmarks=benchmark, methods=method, protocols=None if protocol is None else [protocol.value])
    new = load_results([runs], keeps)
    if not new:
        raise no_finished_runs([runs], some=bool(benchmark or method or protocol))
    old = load_results([target]) if target.is_dir() else []
    written = write_bundles(target, {result.config.key: result for result in (*old, *new)}.values())
    if as_json:
        show_json(written)
    for path in written:
        say_written(path)


def publish(
    places: Annotated[list[Path], typer.Argument(help="Folders of exported results, or of runs.")],
    docs: Annotated[
        Path, typer.Option("--docs", help="The folder that results.md and results/report.html go into.")
    ] = Path("docs"),
) -> None:
    """Make the project's pages from results: the same results give the same pages, to the byte."""
    from fopng import atomic
    from fopng.cli.results import say_written
    from fopng.publishing import pages
    from fopng.store import load_results

    for name, text in pages(load_results(places)).items():
        path = docs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_text(path, text)
        say_written(path)
