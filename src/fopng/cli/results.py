"""Results on the terminal: tables for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import typer
from rich.console import Console

from fopng.cli.reproduction import claims_of
from fopng.lab.choices import ProtocolName
from fopng.lab.report.tables import terminal_tables
from fopng.lab.runs.reference import intransigence, joint_runs
from fopng.lab.runs.result import DamagedFileError, RunResult
from fopng.lab.runs.store import Store, load_results, selection
from fopng.lab.storage.atomic import readable_json


def show_results(results: Sequence[RunResult], *, as_json: bool, out: Path | None = None) -> None:
    """Print results on stdout; in JSON with their intransigence, for which a folder is searched for joint runs."""
    if as_json:
        others = [*results, *([] if out is None else joint_runs(Store(out), results))]
        typer.echo(
            readable_json([{**result.as_dict(), "intransigence": intransigence(result, others)} for result in results])
        )
        return
    console = Console(highlight=False, emoji=False)
    for table in terminal_tables(results):
        console.print(table)


def write_page(path: Path, results: Sequence[RunResult], *, title: str) -> None:
    """Write the page of these results, with the paper's claims where they can be judged, and say where it is."""
    from fopng.lab.report.page import write_report  # here, because charts take a second to import

    path.parent.mkdir(parents=True, exist_ok=True)
    write_report(path, results, title=title, extras=claims_of(results))
    say_written(path)


def say_written(path: Path) -> None:
    """Say on stderr that a file was written."""
    say(f"Written: {path}")


def say(sentence: str) -> None:
    """Say something on stderr."""
    Console(stderr=True, highlight=False, emoji=False).print(sentence, markup=False, soft_wrap=True)


def asked_for(
    places: Sequence[Path],
    benchmarks: list[str] | None,
    methods: list[str] | None,
    protocol: ProtocolName | None,
    *,
    damaged: Callable[[DamagedFileError], None] | None = None,
) -> list[RunResult]:
    """The results in some places that a command's options ask for.

    Args:
        places: folders of runs, or of exported results.
        benchmarks: only these.
        methods: only these.
        protocol: only this one.
        damaged: called for each file that cannot be read, which is then left out; without it the first is raised.

    Raises:
        ValueError: there are none.
    """
    protocols: list[str] | None = None if protocol is None else [protocol]
    keeps = selection(benchmarks=benchmarks, methods=methods, protocols=protocols)
    results = load_results(places, keeps, damaged=damaged)
    if not results:
        which = " of the kind that was asked for" if benchmarks or methods or protocols else ""
        named = ", ".join(map(str, places))
        raise ValueError(f"Expected finished runs in {named}, got none{which}. See: fopng show --out {places[0]}")
    return results
