"""The page of the command line: every command, its arguments and options, from what `--help` is made of."""

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import typer
from reference import write
from sphinx.application import Sphinx

from fopng.cli import app as command_line

INTRODUCTION = """# The command line

Every command, with what `fopng COMMAND --help` says. What they do together stands in the guides on [runs](guides/runs.md),
[sweeps](guides/sweeps.md), [your own data](guides/own-data.md) and [the report](guides/report.md).
"""


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the page before any is read."""
    app.connect("builder-inited", lambda app: write(Path(app.srcdir) / "commands.md", page()))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def page() -> str:
    """The whole page, in Markdown."""
    blocks = [_section(name, command) for name, command in commands(typer.main.get_command(command_line), "fopng")]
    return "\n".join([INTRODUCTION, *blocks])


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every command that does something, with its full name."""
    members = getattr(command, "commands", None)
    if members is None:
        yield name, command
        return
    for word, member in members.items():
        yield from commands(member, f"{name} {word}")


def _section(name: str, command: Any) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    usage = " ".join([name, *(_shown(each) for each in arguments), "[OPTIONS]" if options else ""])
    rows = [f"| {_names(each)} | {_text(each)} |" for each in (*arguments, *options)]
    table = ["| | |", "| --- | --- |", *rows, ""] if rows else []
    return "\n".join([f"## {name}", "", (command.help or "").strip(), "", f"```text\n{usage.strip()}\n```", "", *table])


def _shown(argument: Any) -> str:
    word = str(argument.metavar or argument.name.upper())
    return f"{word}{'...' if argument.nargs != 1 else ''}" if argument.required else f"[{word}]"


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or parameter.name.upper()}`"
    kind = "" if parameter.is_flag else f" {parameter.metavar or _kind(parameter)}"
    return ", ".join(f"`{name}{kind if name == parameter.opts[0] else ''}`" for name in parameter.opts).replace(
        "|", "\\|"
    )


def _kind(parameter: Any) -> str:
    annotation = parameter.type_descriptor.annotation
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "|".join(str(member.value) for member in annotation)
    return "N" if annotation is int else "X" if annotation is float else "TEXT" if annotation is str else "PATH"


def _text(parameter: Any) -> str:
    text = (parameter.help or "").replace("|", "\\|")
    default = parameter.default
    shown = getattr(parameter, "show_default", False) and default not in (None, False) and not callable(default)
    return f"{text} Default: `{getattr(default, 'value', default)}`." if shown else text
