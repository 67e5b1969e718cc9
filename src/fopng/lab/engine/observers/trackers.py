"""Runs in TensorBoard, MLflow and Weights & Biases: an adapter of each, and the one observer that feeds them.

The libraries are imported when a run starts, so that nobody loads them who does not ask for them.
"""

import logging
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, final

from fopng.lab.engine.observers.events import (
    Ending,
    Evaluated,
    Event,
    RunEnded,
    RunStarted,
    Sampling,
    StepDone,
    present_device,
)
from fopng.lab.engine.randomness import random_states_kept
from fopng.lab.storage.locks import hold_when_free

if TYPE_CHECKING:
    from mlflow import MlflowClient


@final
@dataclass(frozen=True, kw_only=True)
class Tracked:
    """Where a run is kept."""

    runs: Path
    """The folder of all runs."""
    run: Path
    """The folder of this one."""
    key: str
    """What names it: a run that goes on after an interruption, or is done again, goes on under the same name."""
    every: int
    """One step in so many is measured."""


class Adapter(Protocol):
    """Writes one run; opened when it starts or goes on."""

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Write numbers by name, as they are after so many steps."""

    def close(self, outcome: Ending) -> None:
        """Write the rest."""


@final
class TensorBoard:
    """Writes into `tensorboard/` of a run's folder, where `tensorboard --logdir` finds it."""

    def __init__(self, place: Tracked, event: RunStarted) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # what a killed process wrote beyond its last checkpoint is written again, and hidden by this
        purged = event.done + 1 if event.done else None
        self._writer = SummaryWriter(str(place.run / "tensorboard"), purge_step=purged)

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Add scalars."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def close(self, outcome: Ending) -> None:
        """Close the file."""
        self._writer.close()


@final
class MLflow:
    """Writes to `mlflow.db` in the folder of all runs, or where MLFLOW_TRACKING_URI says; one experiment per benchmark."""

    def __init__(self, place: Tracked, event: RunStarted) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME") or str(event.facts.get("benchmark", "fopng"))
        # several processes may want to make the same database, or the same experiment, at the same time
        place.runs.mkdir(parents=True, exist_ok=True)
        with hold_when_free(place.runs / "mlflow.lock"), _quiet_mlflow():
            local = f"sqlite:///{(place.runs / 'mlflow.db').resolve()}"
            self._client = MlflowClient(tracking_uri=os.environ.get("MLFLOW_TRACKING_URI") or local)
            self._run = _mlflow_run(self._client, experiment, place.key, event.label)
        params = [Param(name, str(value)) for name, value in flat(event.facts).items()]
        self._client.log_batch(self._run, params=params)

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Log metrics."""
        from mlflow.entities import Metric

        now = round(1000 * time.time())
        self._client.log_batch(self._run, metrics=[Metric(k, float(v), now, step) for k, v in numbers.items()])

    def close(self, outcome: Ending) -> None:
        """Say how the run ended."""
        self._client.set_tag(self._run, "fopng.outcome", outcome)
        status = {"finished": "FINISHED", "diverged": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}
        self._client.set_terminated(self._run, status[outcome])


def _mlflow_run(client: "MlflowClient", experiment: str, key: str, label: str) -> str:
    """The run of this key, which goes on, or a new one."""
    found = client.get_experiment_by_name(experiment)
    number = client.create_experiment(experiment) if found is None else found.experiment_id
    runs = client.search_runs([number], f"tags.`fopng.key` = '{key}'", max_results=1)
    if not runs:
        return str(client.create_run(number, run_name=label, tags={"fopng.key": key}).info.run_id)
    client.update_run(runs[0].info.run_id, status="RUNNING")
    return str(runs[0].info.run_id)


@contextmanager
def _quiet_mlflow() -> Iterator[None]:
    """Leave out what MLflow says while it makes its tables."""
    logger = logging.getLogger("mlflow")
    level = logger.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logger.setLevel(logging.WARNING)
        try:
            yield
        finally:
            logger.setLevel(level)


@final
class WandB:
    """Writes offline, into `wandb/` of a run's folder, for `wandb sync`; WANDB_MODE=online sends it at once."""

    def __init__(self, place: Tracked, event: RunStarted) -> None:
        import wandb

        place.run.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or "fopng",
            group=" ".join(str(event.facts[name]) for name in ("benchmark", "method") if name in event.facts) or None,
            id=place.key,
            name=event.label,
            config=dict(event.facts),
            # a process of its own writes there, perhaps in another folder
            dir=place.run.resolve(),
            mode=None if "WANDB_MODE" in os.environ else "offline",
            resume="allow" if os.environ.get("WANDB_MODE") == "online" else None,
            # several runs may be under way in one process, side by side
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off", save_code=False),
        )
        # its own steps must never go back, and those of a run that goes on from a checkpoint do
        self._run.define_metric("*", step_metric="steps")

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Log numbers."""
        self._run.log({"steps": step, **numbers})

    def close(self, outcome: Ending) -> None:
        """Say how the run ended."""
        self._run.summary["outcome"] = outcome
        self._run.finish(exit_code=0 if outcome in ("finished", "diverged") else 1)


TRACKERS: dict[str, Callable[[Tracked, RunStarted], Adapter]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WandB,
}
"""By the name that people write, which is also the library's and that of the extra that installs it."""


@final
class Tracker(Sampling):
    """Feeds an adapter: the configuration, one step in `every`, the accuracies, and how the run ended."""

    def __init__(self, name: str, place: Tracked) -> None:
        super().__init__(place.every)
        require_trackers([name])
        self._open, self._place, self._step = TRACKERS[name], place, 0

    def observe(self, event: Event) -> None:
        """Pass an event on; random numbers that the library draws are not missing in the run."""
        if isinstance(event, StepDone):
            self._step = event.step
            if event.step % self.every:
                return
        with random_states_kept(present_device()):
            self._pass_on(event)

    def _pass_on(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self._step, self._adapter = event.done, self._open(self._place, event)
        elif isinstance(event, StepDone):
            self._adapter.log({f"step/{name}": value for name, value in event.measure().items()}, self._step)
        elif isinstance(event, Evaluated):
            tasks = {f"{event.part}/task {j}": a for j, a in enumerate(event.accuracies, 1) if a is not None}
            lost = {f"{event.part}/lost of task {j}": a for j, a in enumerate(event.lost, 1) if a is not None}
            self._adapter.log({f"{event.part}/average": event.average, **tasks, **lost}, self._step)
        elif isinstance(event, RunEnded):
            self._adapter.close(event.outcome)


def require_trackers(names: Iterable[str]) -> None:
    """Raise unless these trackers exist and their libraries are installed: before any work is done."""
    for name in names:
        if name not in TRACKERS:
            raise ValueError(f"Expected a tracker out of {', '.join(TRACKERS)}, got {name!r}.")
        if find_spec(name) is None:
            raise ModuleNotFoundError(
                f"Expected the package {name}, got none. Install it with: pip install 'fopng[{name}]'"
            )


def make_trackers(names: Iterable[str], place: Tracked) -> list[Tracker]:
    """The trackers of one run; the same name twice is one."""
    return [Tracker(name, place) for name in dict.fromkeys(names)]


def flat(facts: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """A nested configuration with one name for each value.

    >>> flat({"seed": 0, "settings": {"lr": 0.1}})
    {'seed': 0, 'settings.lr': 0.1}
    """
    found: dict[str, object] = {}
    for name, value in facts.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found
