"""`fopng coverage`: how each layer of a model of one's own would be protected."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import typer

from fopng.cli.commands import Coverage
from fopng.cli.output import show_json
from fopng.optim.coverage import coverage as measure


def coverage(options: Coverage) -> None:
    """Print the table."""
    found = measure(**_made(options.function))
    if options.as_json:
        show_json(asdict(found))
    else:
        typer.echo(str(found))


def _made(name: str) -> dict[str, Any]:
    """What the function returns, by the names of the arguments of `fopng.coverage`."""
    if ":" not in name:
        raise typer.BadParameter(f"Expected module:function, got {name!r}. Such as mine:model_and_batch.")
    sys.path.insert(0, str(Path.cwd()))
    try:
        made = resolve_name(name)()
    finally:
        sys.path.pop(0)
    if not (isinstance(made, tuple) and len(made) in (2, 3)):
        raise typer.BadParameter(
            f"Expected {name} to return (model, batch) or (model, batch, predict), got a {type(made).__name__}."
        )
    return dict(zip(("model", "batch", "predict"), made, strict=False))
