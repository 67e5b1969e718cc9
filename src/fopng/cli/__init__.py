"""The command line. Each command, or group of commands, has a file of its own and is added here."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fopng.cli import ablate, benchmarks, compare, data, demo, methods, publish, report, reproduction, run, show, sweep
from fopng.cli.errors import exit_code

app = typer.Typer(
    name="fopng",
    help="Continual-learning optimizers, and the laboratory that compares them.",
    no_args_is_help=True,
)


def _tell_version(asked: bool) -> None:
    if asked:
        import fopng

        typer.echo(f"fopng {fopng.__version__}")
        raise typer.Exit


@app.callback()
def _before(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    pass


app.command("demo")(demo.demo)
app.command("run")(run.run)
app.command("compare")(compare.compare)
app.command("sweep")(sweep.sweep)
app.command("ablate")(ablate.ablate)
app.command("paper", **reproduction.ELSEWHERE)(reproduction.paper)
app.command("claims", **reproduction.ELSEWHERE)(reproduction.claims)
app.command("report")(report.report)
app.command("export")(publish.export)
app.command("restore")(publish.restore)
app.command("show")(show.show)
app.command("methods")(methods.methods)
app.command("benchmarks")(benchmarks.benchmarks)
app.add_typer(data.app, name="data")


def main() -> None:
    """Run the command line; an error is a line or two on stderr, and the exit code says whose it is."""
    sys.exit(exit_code(app))
