"""Watching a run: progress, logs, diagnostics. Observers are told what happened and cannot change a number."""

from fopng.observers.events import (
    Audience,
    EpochStarted,
    Evaluated,
    Event,
    Observer,
    RunEnded,
    RunStarted,
    StepDone,
    TaskEnded,
    TaskStarted,
)
from fopng.observers.jsonlog import JsonLog, append_line, read_log
from fopng.observers.progress import ProgressBar, ProgressLines, progress
from fopng.observers.tensorboard import TensorBoard

__all__ = [
    "Audience",
    "EpochStarted",
    "Evaluated",
    "Event",
    "JsonLog",
    "Observer",
    "ProgressBar",
    "ProgressLines",
    "RunEnded",
    "RunStarted",
    "StepDone",
    "TaskEnded",
    "TaskStarted",
    "TensorBoard",
    "append_line",
    "progress",
    "read_log",
]
