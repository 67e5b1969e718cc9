"""A user's own stream of tasks, made by a function of theirs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

from fopng.lab.benchmarks.base import Benchmark
from fopng.lab.benchmarks.stream import TaskStream
from fopng.lab.data.named import named_function


@final
@dataclass(frozen=True)
class OwnStream(Benchmark):
    """The stream that `module:function` returns when it is called with `seed` and `validation`."""

    function: str

    @property
    def name(self) -> str:
        """The reference itself."""
        return self.function

    def build(self, *, seed: int, validation: bool, data_dir: Path | None = None) -> TaskStream:
        """Call the function; it must return a TaskStream, with validation splits when they are asked for."""
        stream = named_function(self.function)(seed=seed, validation=validation)
        if not isinstance(stream, TaskStream):
            raise TypeError(f"Expected a TaskStream from {self.function}, got {type(stream).__name__}.")
        if validation and any(task.validation is None for task in stream):
            raise ValueError(
                f"Expected validation in every task of {self.function} for a selection, got tasks without."
            )
        return stream
