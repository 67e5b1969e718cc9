"""`fopng paper` and `fopng claims`: commands of the paper's reproduction, which a clone has and a wheel has not."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, final

import typer

import fopng

if TYPE_CHECKING:
    from fopng.lab.report.page import Extra
    from fopng.lab.runs.result import RunResult

FOLDER, VARIABLE = "reproduction", "FOPNG_REPRODUCTION"


@final
@dataclass(frozen=True)
class FromClone:
    """A command that the reproduction has.

    Attributes:
        line: what it is for, in one line.
    """

    line: str

    def build(self, name: str) -> Any:
        """The command as Typer has it; where there is no reproduction, one that says where to get it."""
        module = reproduction("options")
        if module is not None:
            return module.COMMANDS[name].build(name)
        app = typer.Typer(add_completion=False)
        anything = {"allow_extra_args": True, "ignore_unknown_options": True}
        app.command(name, help=f"{self.line}\n\n{_MISSING}", context_settings=anything)(_refuse)
        return typer.main.get_command(app)


_MISSING = f"Clone the repository of fopng, then work inside it, or set {VARIABLE} to its folder {FOLDER}."


def _refuse() -> None:
    raise ValueError(f"Expected the folder {FOLDER} of a clone of fopng, got none. {_MISSING}")


def claims_of(results: Sequence[RunResult]) -> list[Extra]:
    """What these runs say of the paper's claims, for a page; nothing where the reproduction is not there."""
    module = reproduction("claims.section")
    return [] if module is None else module.sections(results)


def reproduction(part: str) -> ModuleType | None:
    """A module of the reproduction; None where there is none."""
    if FOLDER not in sys.modules and not _load():
        return None
    return import_module(f"{FOLDER}.{part}")


def _load() -> bool:
    """Import it by its path, so that no other module of that name is in its way."""
    for folder in _places():
        start = folder / "__init__.py"
        if (folder / "options.py").is_file() and start.is_file():
            spec = importlib.util.spec_from_file_location(FOLDER, start, submodule_search_locations=[str(folder)])
            if spec is None or spec.loader is None:
                continue
            sys.modules[FOLDER] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[FOLDER])
            return True
    return False


def _places() -> Iterable[Path]:
    """The folder that was named; else that of the clone that this package runs from, of this folder, or of one above it."""
    named = os.environ.get(VARIABLE)
    if named:
        return [Path(named)]
    here = Path.cwd()
    return [root / FOLDER for root in (Path(fopng.__file__).parents[2], here, *here.parents)]
