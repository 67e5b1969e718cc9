"""Ctrl-C and SIGTERM: the first signal asks for a stop after a save, the second stops at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import final

GENTLE = (signal.SIGINT, signal.SIGTERM)


@final
class StopSignals:
    """A context in which a signal only sets a flag: `number` says which signal came."""

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
