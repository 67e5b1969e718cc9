"""How results leave the command line: a table for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from fopng.lab.runs.config import without_control


def show_json(value: Any) -> None:
    """Print a value as JSON; paths become strings."""
    typer.echo(json.dumps(value, indent=2, default=str))


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """Print a table without borders; the last column folds where the terminal is narrow."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        last = column == columns[-1]
        table.add_column(
            column,
            justify="right" if column in right else "left",
            no_wrap=not last,
            overflow="fold" if last else "ellipsis",
        )
    for row in rows:
        table.add_row(*map(without_control, row))
    Console(highlight=False, markup=False, emoji=False).print(table)


def megabytes(size: int) -> str:
    """A size for people.

    >>> megabytes(52_400_000)
    '52.4 MB'
    """
    return f"{size / 1e6:.1f} MB"
