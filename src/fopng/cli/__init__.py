"""The command line. A command is a dataclass of options in `commands.py`, a function that does it, and a line here."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

import typer

from fopng import __version__
from fopng.cli.errors import exit_code
from fopng.cli.lazy import Buildable, Command, Group, LazyGroup
from fopng.cli.reproduction import FromClone


def _command(line: str, options: str, action: str) -> Command:
    return Command(line, f"fopng.cli.commands:{options}", f"fopng.cli.{action}")


DATA = {
    "list": _command(
        "Show which datasets are on this machine, where, and how large.", "DataList", "data:list_datasets"
    ),
    "fetch": _command("Get datasets, and check what came.", "DataFetch", "data:fetch"),
    "verify": _command("Hold every copy on this machine against its known SHA-256.", "DataVerify", "data:verify"),
    "path": _command("Print where a dataset is, or the cache folder.", "DataPath", "data:path"),
}

COMMANDS: dict[str, Buildable] = {
    "demo": _command("Compare eight methods on small digits: from nothing to a page.", "Demo", "demo:demo"),
    "run": _command("Run one method on a benchmark.", "Run", "run:run"),
    "compare": _command("Run several methods on a benchmark: a table and a page.", "Compare", "compare:compare"),
    "sweep": _command("Try settings on held-out data, and test the best.", "Sweep", "sweep:sweep"),
    "ablate": _command("Vary one setting with all others kept: a table and a page.", "Ablate", "ablate:ablate"),
    "paper": FromClone("Do the paper's experiments, and judge its claims."),
    "claims": FromClone("Judge the paper's claims by the runs that are there."),
    "report": _command("Make a page, tables or figures from runs that are there.", "Report", "report:report"),
    "export": _command("Write results into a few small files, to commit.", "Export", "export:export"),
    "restore": _command("Put exported results back into a folder of runs.", "Restore", "export:restore"),
    "show": _command("List the runs, finished or not, or show one of them.", "Show", "show:show"),
    "watch": _command("Follow the runs in a folder as they go.", "Watch", "watch:watch"),
    "methods": _command("List the methods, or the settings of one.", "Methods", "methods:methods"),
    "coverage": _command("Show how each layer of a model of yours is protected.", "Coverage", "coverage:coverage"),
    "benchmarks": _command("List the benchmarks, or the settings of one.", "Benchmarks", "benchmarks:benchmarks"),
    "data": Group("Where the datasets are, getting them, checking them.", DATA),
}
"""Every command: its line of help, its options in `commands.py`, and the function that does it."""


class _Root(LazyGroup):
    known = COMMANDS


app = typer.Typer(
    name="fopng",
    cls=_Root,
    help="Continual-learning optimizers, and the laboratory that compares them.",
)


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(f"fopng {__version__}")
        raise typer.Exit


@app.callback()
def _before(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; an error is a line or two on stderr, and the exit code says whose it is."""
    sys.exit(exit_code(partial(app, prog_name="fopng")))
