"""The trackers by the names that people write."""

from collections.abc import Iterable, Mapping

from fopng.lab.engine.observers.mlflow import MLflow
from fopng.lab.engine.observers.tensorboard import TensorBoard
from fopng.lab.engine.observers.tracker import Tracked, Tracker
from fopng.lab.engine.observers.wandb import WandB

TRACKERS: Mapping[str, type[Tracker]] = {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": WandB}


def require_trackers(names: Iterable[str]) -> None:
    """Raise unless these trackers exist and their libraries are installed: before any work is done."""
    for name in names:
        if name not in TRACKERS:
            raise ValueError(f"Expected a tracker out of {', '.join(TRACKERS)}, got {name!r}.")
        TRACKERS[name].require_package()


def make_trackers(names: Iterable[str], tracked: Tracked) -> list[Tracker]:
    """The trackers of one run; the same name twice is one."""
    return [TRACKERS[name].of(tracked) for name in dict.fromkeys(names)]
