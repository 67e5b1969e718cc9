"""Results on the terminal: tables for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

if TYPE_CHECKING:
    from fopng.result import RunResult


def show_results(results: Sequence[RunResult], *, as_json: bool, out: Path | None = None) -> None:
    """Print results on stdout, and where they are on stderr."""
    from fopng.atomic import readable_json
    from fopng.report import result_tables

    if as_json:
        typer.echo(readable_json([result.as_dict() for result in results]))
        return
    console = Console(highlight=False, emoji=False)
    for table in result_tables(results):
        console.print(table)
    if out is not None:
        Console(stderr=True, highlight=False).print(
            f"Runs in {out}. A page from them: fopng report {out}", markup=False
        )
