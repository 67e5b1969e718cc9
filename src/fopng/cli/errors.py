"""The one place where errors become messages: a line or two on stderr, exit code 2 for usage and 1 for failure."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from tempfile import NamedTemporaryFile
from typing import Any, Protocol, runtime_checkable

from fopng.cli.stopping import Stopped, code_of

USAGE, FAILURE = 2, 1

OURS = ("fopng.", "reproduction.")
"""An error whose type is from here says what to do."""


@runtime_checkable
class _Usage(Protocol):
    """What the command-line library raises for arguments it cannot read."""

    exit_code: int

    def format_message(self) -> str: ...


def exit_code(run: Callable[..., Any]) -> int:
    """Run the command line and say how it ended. FOPNG_DEBUG=1 lets an error through, with its traceback."""
    try:
        code = run(standalone_mode=False)
    except Stopped as error:
        return _say(str(error), error.code)
    except KeyboardInterrupt as error:
        return _say("Stopped.", code_of(error))
    except Exception as error:
        if os.environ.get("FOPNG_DEBUG"):
            raise
        return _say(*_explain(error))
    return code if isinstance(code, int) else 0


def _explain(error: Exception) -> tuple[str, int]:
    if isinstance(error, _Usage):
        message = error.format_message()
        message += "" if message.endswith((".", "?", "!")) else "."
        return f"{message}{_hint(error)} Run the command with --help.", error.exit_code
    kind = type(error)
    if kind.__module__.startswith(OURS) or isinstance(error, ImportError):
        return str(error), FAILURE
    if isinstance(error, OSError):
        return _refused(error), FAILURE
    if isinstance(error, ValueError):  # a value that the user gave: a name, a setting, a seed
        return str(error), USAGE
    if isinstance(error, MemoryError) or kind.__name__ == "OutOfMemoryError":
        return f"Not enough memory: {error}", FAILURE
    with NamedTemporaryFile("w", prefix="fopng-", suffix=".txt", delete=False) as file:
        traceback.print_exception(error, file=file)
    return (
        f"{kind.__name__}: {error}\nThis may be a bug. FOPNG_DEBUG=1 shows the traceback, kept in {file.name}",
        FAILURE,
    )


def _refused(error: OSError) -> str:
    """What the system refused, and of which file."""
    if error.filename is None:
        return str(error)
    return (
        f"Expected to use {error.filename}, got: {error.strerror}. What was saved before is unchanged. "
        "Mend that, then run the same command again."
    )


def _hint(error: _Usage) -> str:
    """For an option that there is not, in a command that takes settings."""
    option, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if option is None or context is None or not any("--set" in each.opts for each in context.command.params):
        return ""
    name = option.lstrip("-").removesuffix("s")
    places = [each.name for each in context.command.params if not each.opts[0].startswith("-")]
    if name in (place.removesuffix("s") for place in places):
        return f" A {name} is given without an option: fopng {context.command.name} BENCHMARK METHOD."
    return f" A setting is given as --set {option.lstrip('-').replace('-', '_')}=VALUE."


def _say(message: str, code: int) -> int:
    print(f"fopng: {message}", file=sys.stderr)  # noqa: T201
    return code
