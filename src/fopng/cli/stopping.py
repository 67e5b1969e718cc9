"""Work that a signal stopped: what is said, and the exit code."""

from __future__ import annotations

import signal


class Stopped(Exception):
    """Work was stopped by a signal, and can go on."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.code = 128 + number


def code_of(interrupt: KeyboardInterrupt) -> int:
    """The exit code for an interrupt: that of the signal that it names, or of Ctrl-C."""
    number: int = (interrupt.args or (signal.SIGINT,))[0]
    return 128 + number
