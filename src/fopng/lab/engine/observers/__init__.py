"""Watching a run: progress, logs, diagnostics. Observers are told what happened and cannot change a number."""

from fopng.lab.engine.observers.events import (
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
from fopng.lab.engine.observers.jsonlog import JsonLog, append_line, read_log
from fopng.lab.engine.observers.mlflow import MLflow
from fopng.lab.engine.observers.progress import ProgressBar, ProgressLines, progress
from fopng.lab.engine.observers.tensorboard import TensorBoard
from fopng.lab.engine.observers.tracker import Tracked, Tracker
from fopng.lab.engine.observers.tracking import TRACKERS, make_trackers, require_trackers
from fopng.lab.engine.observers.wandb import WandB

__all__ = [
    "TRACKERS",
    "Audience",
    "EpochStarted",
    "Evaluated",
    "Event",
    "JsonLog",
    "MLflow",
    "Observer",
    "ProgressBar",
    "ProgressLines",
    "RunEnded",
    "RunStarted",
    "StepDone",
    "TaskEnded",
    "TaskStarted",
    "TensorBoard",
    "Tracked",
    "Tracker",
    "WandB",
    "append_line",
    "make_trackers",
    "progress",
    "read_log",
    "require_trackers",
]
