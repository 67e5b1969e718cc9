"""Ctrl-C and a polite kill: the run is saved first; the second time it stops at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import final

GENTLE = (signal.SIGINT, signal.SIGTERM)


class Stopped(Exception):
    """Work was stopped by a signal, and can go on."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.code = 128 + number


@final
class StopSignals:
    """While the context lasts, a signal only raises a flag: `number` says which came."""

    def __init__(self, signals: Sequence[signal.Signals] = GENTLE, *, quiet: bool = False) -> None:
        self.number: int | None = None
        self._signals, self._quiet = signals, quiet

    def __enter__(self) -> StopSignals:
        self._before = {name: signal.signal(name, self._take) for name in self._signals}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for name, handler in self._before.items():
            signal.signal(name, handler)

    def __call__(self) -> bool:
        """Whether to stop."""
        return self.number is not None

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            raise KeyboardInterrupt
        self.number = number
        if not self._quiet:
            # Not `print`: the signal may have come in the middle of one.
            os.write(2, b"\nfopng: Stopping as soon as it is saved. Once more stops at once.\n")
