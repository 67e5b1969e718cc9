"""The one place where errors become messages: a line or two on stderr, exit code 2 for usage and 1 for failure."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import typer

from fopng.cli.work import Stopped

USAGE, FAILURE, INTERRUPTED = 2, 1, 130


@runtime_checkable
class _Usage(Protocol):
    """What the command-line library raises for arguments it cannot read."""

    exit_code: int

    def format_message(self) -> str: ...


def exit_code(run: Callable[..., Any]) -> int:
    """Run the command line and say how it ended. FOPNG_DEBUG=1 lets an error through, with its traceback."""
    try:
        code = run(standalone_mode=False)
    except typer.Abort:
        return _say("Stopped.", INTERRUPTED)
    except KeyboardInterrupt:
        return _say("Stopped.", INTERRUPTED)
    except Exception as error:
        if os.environ.get("FOPNG_DEBUG"):
            raise
        return _explain(error)
    return code if isinstance(code, int) else 0


def _explain(error: Exception) -> int:
    if isinstance(error, _Usage):
        message = error.format_message()
        message += "" if not message or message.endswith((".", "?", "!")) else "."
        message += _setting_hint(error)
        return _say(f"{message} Run the command with --help.", error.exit_code) if message else error.exit_code
    from fopng.lab.data.errors import DataError
    from fopng.lab.runs.result import DamagedFileError
    from fopng.lab.schedule.errors import ClusterError, FailedRunsError
    from fopng.lab.storage.checkpoint import CheckpointError
    from fopng.lab.storage.locks import HeldError

    failures = (
        DataError,
        OSError,
        ImportError,
        CheckpointError,
        DamagedFileError,
        HeldError,
        FailedRunsError,
        ClusterError,
    )
    if isinstance(error, Stopped):
        return _say(str(error), error.code)
    if isinstance(error, ValueError) and not isinstance(
        error, failures
    ):  # a value that the user gave: a name, a setting, a seed
        return _say(str(error), USAGE)
    if isinstance(error, failures):
        return _say(str(error), FAILURE)
    return _say(f"{type(error).__name__}: {error}\nSet FOPNG_DEBUG=1 to see where it happened.", FAILURE)


def _setting_hint(error: _Usage) -> str:
    """For an option that there is not, in a command that takes settings."""
    option, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if option is None or context is None or not any("--set" in each.opts for each in context.command.params):
        return ""
    name = option.lstrip("-").removesuffix("s")
    places = [each.name for each in context.command.params if not each.opts[0].startswith("-")]
    if name in (place.removesuffix("s") for place in places):
        return f" A {name} is given without an option: fopng {context.command.name} BENCHMARK METHOD."
    setting = option.lstrip("-").replace("-", "_")
    return f" A setting is given as --set {setting}=VALUE." if _is_setting(setting) else ""


def _is_setting(name: str) -> bool:
    """Whether any method or benchmark has such a setting."""
    from fopng.lab.benchmarks import BENCHMARKS, settable
    from fopng.lab.runs.settings import TRAINING, method_settings
    from fopng.optim.registry import METHODS

    words = (word for benchmark in BENCHMARKS.values() for word in settable(benchmark))
    return name in TRAINING or any(name in method_settings(each) for each in METHODS.values()) or name in words


def _say(message: str, code: int) -> int:
    print(f"fopng: {message}", file=sys.stderr)  # noqa: T201
    return code
