"""Someone's own Python object, named `module:name` on a command line."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def named_object(reference: str) -> object:
    """What `module:name` names; modules in the current folder are found too."""
    module_name, _, name = reference.partition(":")
    if not module_name or not name:
        raise ValueError(f"Expected module:function, got {reference!r}.")
    # A console script, unlike `python -m`, does not look in the folder it is started from.
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise  # the user's module is there; one that it imports is not
        where = f"in {Path.cwd()} or among the installed packages"
        raise ValueError(f"Expected a module {module_name!r} {where}, got none, for {reference!r}.") from error
    return vars(module).get(name)


def named_function(reference: str) -> Callable[..., Any]:
    """The function that `module:function` names.

    >>> named_function("math:sqrt")(4.0)
    2.0
    """
    found = named_object(reference)
    if not callable(found):
        raise ValueError(f"Expected a function for {reference!r}, got {type(found).__name__}.")
    return found
