"""`fopng report`: a page, or a table of numbers, from the runs that are there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fopng.cli.options import JsonOption, Protocol, complete_benchmarks, complete_methods

if TYPE_CHECKING:
    from fopng.result import RunResult


def report(
    runs: Annotated[Path, typer.Argument(help="The folder of the runs.")] = Path("runs"),
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="A .html page, a .csv table with a row a run, or a .json list of results."),
    ] = Path("report.html"),
    benchmark: Annotated[
        list[str] | None,
        typer.Option(
            "--benchmark",
            help="Only this one. Can be repeated.",
            autocompletion=complete_benchmarks,
            show_default=False,
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method", help="Only this one. Can be repeated.", autocompletion=complete_methods, show_default=False
        ),
    ] = None,
    protocol: Annotated[Protocol | None, typer.Option("--protocol", help="Only this one.", show_default=False)] = None,
    matrix: Annotated[
        bool,
        typer.Option("--matrix", help="In a .csv file the accuracy matrices, a row an entry, instead of the scores."),
    ] = False,
    title: Annotated[str, typer.Option("--title", help="The page's title.")] = "Continual learning",
    as_json: JsonOption = False,
) -> None:
    """Make a page from whatever runs are there, and print its tables."""
    from fopng.cli.results import show_results
    from fopng.store import Store, selection

    if output.suffix not in (".html", ".csv", ".json"):
        raise ValueError(f"Expected a file that ends in .html, .csv or .json, got {output}.")
    if matrix and output.suffix != ".csv":
        raise ValueError(f"Expected a .csv file for --matrix, got {output}.")
    keeps = selection(benchmarks=benchmark, methods=method, protocols=None if protocol is None else [protocol.value])
    results = Store(runs).results(keeps, damaged=lambda error: typer.echo(f"fopng: {error}", err=True))
    if not results:
        raise ValueError(
            f"Expected finished runs in {runs}, got none that were asked for. See: fopng show --out {runs}"
        )
    show_results(results, as_json=as_json)
    _write(output, results, title=title, matrix=matrix)


def _write(output: Path, results: list[RunResult], *, title: str, matrix: bool) -> None:
    from fopng.cli.results import say_written, write_page
    from fopng.export import write_json, write_matrix_csv, write_summary_csv

    if output.suffix == ".html":
        write_page(output, results, title=title)
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    if output.suffix == ".json":
        write_json(output, results)
    else:
        (write_matrix_csv if matrix else write_summary_csv)(output, results)
    say_written(output)
