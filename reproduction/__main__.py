"""`python -m reproduction`: the commands of the reproduction."""

import sys

import typer

from fopng.cli.errors import exit_code
from fopng.cli.lazy import LazyGroup
from reproduction.options import COMMANDS


class _Root(LazyGroup):
    known = COMMANDS


app = typer.Typer(name="reproduction", cls=_Root, help="The reproduction of the paper.", add_completion=False)
app.callback()(lambda: None)

if __name__ == "__main__":
    sys.exit(exit_code(app))
