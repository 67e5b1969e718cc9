"""Commands that are imported when they are asked for: `fopng --help` imports none of them, and nothing that they need."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from inspect import Parameter, Signature, cleandoc
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any, Protocol, final, get_type_hints

import typer
from typer.core import TyperGroup

from fopng.cli.stopping import Stopped, code_of


class Buildable(Protocol):
    """What a group knows of a command, or of another group."""

    @property
    def line(self) -> str:
        """What it is for, in one line."""
        ...

    def build(self, name: str) -> Any:
        """What Typer has of it."""
        ...


@final
@dataclass(frozen=True)
class Command:
    """A command before it is imported.

    Attributes:
        line: what it is for, in one line.
        options: the dataclass of its arguments and options, `module:name`; its docstring goes on with the help.
        action: the function that does it, given these, `module:name`.
    """

    line: str
    options: str
    action: str

    def build(self, name: str) -> Any:
        """The command as Typer has it: its options are imported now, what does it when it is done."""
        kind = resolve_name(self.options)
        parameters = _parameters(kind)

        def run(**words: Any) -> None:
            resolve_name(self.action)(kind(**words))

        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        app = typer.Typer(add_completion=False)
        app.command(name, help=f"{self.line}\n\n{cleandoc(kind.__doc__)}")(run)
        return typer.main.get_command(app)


@final
@dataclass(frozen=True)
class Group:
    """Commands behind a word of their own.

    Attributes:
        line: what they are for, in one line.
        commands: by name.
    """

    line: str
    commands: Mapping[str, Buildable]

    def build(self, name: str) -> Any:
        """The group as Typer has it."""
        return LazyGroup(name=name, known=self.commands, help=self.line)


class LazyGroup(TyperGroup):
    """A group that imports a command when somebody asks for it, and lists all by the lines that it knows."""

    known: Mapping[str, Buildable] = MappingProxyType({})

    def __init__(self, **attributes: Any) -> None:
        self._known = attributes.pop("known", self.known)
        # Plain text: the library that draws boxes takes longer to import than all else here.
        super().__init__(**{**attributes, "rich_markup_mode": None})
        self.commands = _Commands(self._known)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options before a command; without anything show the help."""
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help(), err=True)
            raise typer.Exit(2)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Do the command. Typer would end without a word when it is interrupted."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            raise Stopped("Stopped.", code_of(interrupt) - 128) from interrupt

    def list_commands(self, ctx: Any) -> list[str]:
        """Names, in the order in which they were given."""
        return list(self._known)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands into the help."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.line) for name, each in self._known.items()])


class _Commands(UserDict[str, Any]):
    """Commands by name, each built when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        return super().__getitem__(name).build(name)


def _parameters(kind: type[Any]) -> list[Parameter]:
    """The parameters of a function that takes a dataclass field by field: its own fields first, then those of its bases."""
    hints = get_type_hints(kind, include_extras=True)
    own = sorted(fields(kind), key=lambda field: field.name not in kind.__annotations__)
    return [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=_default(field), annotation=hints[field.name])
        for field in own
    ]


def _default(field: Any) -> Any:
    return Parameter.empty if field.default is MISSING else field.default
