"""`fopng export`, `restore` and `publish`: results as small files to commit, runs from them, and the project's pages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fopng.cli.options import Protocol, complete_benchmarks, complete_methods
from fopng.cli.output import JsonOption, show_json

if TYPE_CHECKING:
    from fopng.result import RunResult


BenchmarkOption = Annotated[
    list[str] | None,
    typer.Option("--benchmark", help="Only this one. Can be repeated.", autocompletion=complete_benchmarks),
]
MethodOption = Annotated[
    list[str] | None,
    typer.Option("--method", help="Only this one. Can be repeated.", autocompletion=complete_methods),
]
ProtocolOption = Annotated[Protocol | None, typer.Option("--protocol", help="Only this one.")]


def export(
    runs: Annotated[Path, typer.Argument(help="The folder of the runs.")],
    target: Annotated[Path, typer.Argument(help="The folder that the files go into.")],
    benchmark: BenchmarkOption = None,
    method: MethodOption = None,
    protocol: ProtocolOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write results into a few small files, beside what is there already: a run that is new replaces an old one."""
    from fopng.cli.results import say_written
    from fopng.export import write_bundles
    from fopng.store import load_results

    new = _chosen(runs, benchmark, method, protocol)
    old = load_results([target]) if target.is_dir() else []
    written = write_bundles(target, {result.config.key: result for result in (*old, *new)}.values())
    if as_json:
        show_json(written)
    for path in written:
        say_written(path)


def restore(
    results: Annotated[Path, typer.Argument(help="The folder of exported results, or of runs.")],
    target: Annotated[Path, typer.Argument(help="The folder of runs that they go into.")],
    benchmark: BenchmarkOption = None,
    method: MethodOption = None,
    protocol: ProtocolOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put exported results into a folder of runs, where they count as done: what is asked for there goes on from them."""
    from fopng.cli.results import say
    from fopng.store import Store

    there = 0
    found = _chosen(results, benchmark, method, protocol)
    for result in found:
        folder = Store(target).folder(result.config)
        with folder.claim() as done:
            if done is None:
                folder.finish(result)
            else:
                there += 1
    if as_json:
        show_json({"restored": len(found) - there, "there": there})
    say(f"{len(found) - there} runs restored in {target}, {there} there already.")


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


def _chosen(
    place: Path, benchmarks: list[str] | None, methods: list[str] | None, protocol: Protocol | None
) -> list[RunResult]:
    """The results in a folder that the options ask for, at least one."""
    from fopng.cli.results import no_finished_runs
    from fopng.store import load_results, selection

    protocols = None if protocol is None else [protocol.value]
    found = load_results([place], selection(benchmarks=benchmarks, methods=methods, protocols=protocols))
    if not found:
        raise no_finished_runs([place], some=bool(benchmarks or methods or protocols))
    return found
