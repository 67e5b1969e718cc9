"""The command line. Each command, or group of commands, has a file of its own and is added here."""

from __future__ import annotations

import sys

import typer

from fopng.cli import benchmarks, data, run
from fopng.cli.errors import exit_code

app = typer.Typer(
    name="fopng",
    help="Continual-learning optimizers, and the laboratory that compares them.",
    no_args_is_help=True,
)
app.command("run")(run.run)
app.add_typer(data.app, name="data")
app.command("benchmarks")(benchmarks.benchmarks)


def main() -> None:
    """Run the command line; an error is a line or two on stderr, and the exit code says whose it is."""
    sys.exit(exit_code(app))
