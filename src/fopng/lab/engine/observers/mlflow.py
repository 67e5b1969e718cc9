"""Runs in MLflow."""

import logging
import os
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self, final

from fopng.lab.engine.observers.events import RunEnded, RunStarted
from fopng.lab.engine.observers.tracker import Tracked, Tracker, flat
from fopng.lab.storage.locks import hold_when_free

if TYPE_CHECKING:
    from mlflow import MlflowClient

_KEY = "fopng.key"
_STATUS = {"finished": "FINISHED", "diverged": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}


@final
class MLflow(Tracker):
    """Write to `mlflow.db` in the folder of all runs, or where MLFLOW_TRACKING_URI says; an experiment a benchmark.

    Args:
        folder: of all runs.
        key: names this one. A run that goes on after an interruption, or is done again, goes on in MLflow too.
        every: one step in so many is measured.
    """

    package: ClassVar[str] = "mlflow"

    def __init__(self, folder: Path, *, key: str, every: int) -> None:
        super().__init__(every=every)
        self._folder, self._key = folder, key

    @classmethod
    def of(cls, tracked: Tracked) -> Self:
        return cls(tracked.runs, key=tracked.key, every=tracked.every)

    def start(self, event: RunStarted) -> None:
        from mlflow.entities import Param

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or str(event.facts.get("benchmark", "fopng"))
        # several processes may want to make the same database, or the same experiment, at the same time
        self._folder.mkdir(parents=True, exist_ok=True)
        with hold_when_free(self._folder / "mlflow.lock"), _quiet():
            self._client = self._connect()
            self._run = self._find_run(name) or self._make_run(name, event.label)
        params = [Param(key, str(value)) for key, value in flat(event.facts).items()]
        self._client.log_batch(self._run, params=params)

    def write(self, scalars: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = round(1000 * time.time())
        self._client.log_batch(self._run, metrics=[Metric(k, float(v), now, step) for k, v in scalars.items()])

    def end(self, event: RunEnded) -> None:
        self._client.set_tag(self._run, "fopng.outcome", event.outcome)
        self._client.set_terminated(self._run, _STATUS[event.outcome])

    def _connect(self) -> "MlflowClient":
        from mlflow import MlflowClient

        local = f"sqlite:///{(self._folder / 'mlflow.db').resolve()}"
        return MlflowClient(tracking_uri=os.environ.get("MLFLOW_TRACKING_URI") or local)

    def _find_run(self, experiment: str) -> str | None:
        found = self._client.get_experiment_by_name(experiment)
        if found is None:
            return None
        runs = self._client.search_runs([found.experiment_id], f"tags.`{_KEY}` = '{self._key}'", max_results=1)
        if not runs:
            return None
        self._client.update_run(runs[0].info.run_id, status="RUNNING")
        return str(runs[0].info.run_id)

    def _make_run(self, experiment: str, label: str) -> str:
        found = self._client.get_experiment_by_name(experiment)
        number = self._client.create_experiment(experiment) if found is None else found.experiment_id
        return str(self._client.create_run(number, run_name=label, tags={_KEY: self._key}).info.run_id)


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out what MLflow says while it makes its tables."""
    logger = logging.getLogger("mlflow")
    level = logger.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mlflow  # noqa: F401  # sets the level of its logger

        logger.setLevel(logging.WARNING)
        try:
            yield
        finally:
            logger.setLevel(level)
