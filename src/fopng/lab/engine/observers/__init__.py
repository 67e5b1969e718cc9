"""Watching a run: progress, logs, trackers. Observers are told what happened and cannot change a number."""

from fopng.lab.engine.observers.events import (
    Audience,
    Ending,
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
from fopng.lab.engine.observers.jsonlog import JsonLog, append_line, read_log
from fopng.lab.engine.observers.progress import ProgressBar, ProgressLines, progress
from fopng.lab.engine.observers.trackers import TRACKERS, Tracked, make_trackers, require_trackers

__all__ = [
    "TRACKERS",
    "Audience",
    "Ending",
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
    "Tracked",
    "append_line",
    "make_trackers",
    "progress",
    "read_log",
    "require_trackers",
]
