"""Do runs on a Ray cluster. A task does a group of runs with a `Runner`, in the folder of runs that all machines share.

Nothing travels but configurations and results: checkpoints, logs and locks are files in the shared folder. So a task that is
lost is submitted again and continues from its checkpoint, wherever it is done next.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, final

from fopng.lab.data.errors import DataError
from fopng.lab.engine import Interrupted
from fopng.lab.engine.observers import append_line, read_log
from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.result import RunResult
from fopng.lab.runs.store import Store
from fopng.lab.schedule.errors import ClusterError
from fopng.lab.schedule.groups import GroupFolder, alike, halves, is_grouped, unfinished_groups
from fopng.lab.schedule.ray_cluster import check_shared, check_shared_everywhere, connect, mark
from fopng.lab.schedule.ray_machines import Machines
from fopng.lab.schedule.runner import Runner, Work, ignore, label, never
from fopng.lab.schedule.signals import StopSignals
from fopng.lab.schedule.view import Tally, View
from fopng.lab.storage.locks import HeldError, is_held

POLL_SECONDS = 0.2

LOOK_SECONDS = 2.0
"""The time between two looks at how far runs are, and between two tries at runs that others are doing."""

MOST_FAILURES = 3
"""A run that was part of this many failures, the last of them its own, is given up."""

MOST_LOSSES = 10
"""A group that is lost this often in a row, with nothing saved in between, counts as failed."""


@final
@dataclass(frozen=True)
class Group:
    """Runs that one task does, and what has happened to them."""

    configs: Sequence[RunConfig]
    failures: int = 0
    losses: int = 0
    saved: float = 0.0
    """When something was last saved, as far as was known at the last loss."""
    held: bool = False
    """Whether another process was doing its runs."""

    def after_failure(self) -> list[Group]:
        """What to try next: the halves; a single run again. Nothing when it is to be given up."""
        failures = self.failures + 1
        if len(self.configs) > 1:
            return [Group(half, failures) for half in halves(self.configs)]
        return [] if failures >= MOST_FAILURES else [replace(self, failures=failures)]

    def after_loss(self, saved: float) -> list[Group]:
        """The same again, as a loss is nobody's fault; a failure when it happens too often with nothing saved."""
        losses = 1 if saved > self.saved else self.losses + 1
        if losses < MOST_LOSSES:
            return [replace(self, losses=losses, saved=saved)]
        return replace(self, losses=0, failures=max(self.failures, MOST_FAILURES - 1)).after_failure()


def do_on_ray(work: Work) -> None:
    """Do the missing runs as tasks of Ray. Runs that fail are left out, whatever they raise."""
    ray, root = connect(work.runner.address), work.runner.store.root.resolve()
    text = mark(root)
    check_shared_everywhere(ray, root, text)
    RayExecutor(work, ray, root, text).do()


def do_group(runner: Runner, configs: Sequence[RunConfig], experiment: str, folder: Path, text: str) -> _Report:
    """The task: do these runs on the machine where it is started."""
    if folder.is_dir():
        os.chdir(folder)  # a user's own functions and images are found from where the command was given
    check_shared(runner.store.root, text)
    notices: list[str] = []
    with StopSignals((signal.SIGINT,), quiet=True) as stopped:
        results = replace(runner, notice=notices.append, should_stop=stopped).do(configs, experiment)
    return results, notices


_Report = tuple[list[RunResult], list[str]]


@final
class RayExecutor:
    """Submits groups, and submits again what was lost.

    Args:
        work: the runs.
        ray: the module, connected.
        root: the folder of the runs.
        text: what the marker in that folder says.
    """

    def __init__(self, work: Work, ray: ModuleType, root: Path, text: str) -> None:
        asked = work.runner
        threads, data_dir = asked.threads or 1, None if asked.data_dir is None else asked.data_dir.resolve()
        self._work, self._ray, self._text = work, ray, text
        self._machines = Machines(ray, threads=threads, gpus=asked.gpus, data_dir=data_dir)
        plain = replace(asked, view=View(), observers=(), notice=ignore, should_stop=never)
        self._runner = replace(
            plain, store=Store(root), data_dir=data_dir, threads=threads, device=self._machines.device,
            engine="auto", address=None, keep_going=False, wait=False,
        )  # fmt: skip
        self._task, self._runs = ray.remote(do_group), len(work.missing)
        self._out: dict[Any, Group] = {}
        self._later: list[Group] = []
        self._looked, self._shares = time.monotonic(), list[float]()
        self._counts = {"done": 0, "failed": 0}
        self._stopping = False

    def do(self) -> None:
        """Do everything."""
        try:
            for group in self._groups():
                self._submit(Group(group))
            while self._out or self._later:
                self._poll()
        finally:
            self._cancel()
        if self._stopping and self._work.missing:
            raise Interrupted(f"Stopped with {len(self._work.done)} of {len(self._work.configs)} runs done.")

    def _poll(self) -> None:
        if self._work.runner.should_stop() and not self._stopping:
            self._stopping = True
            self._later.clear()
            self._cancel()
        for task in self._ended():
            self._take(task, self._out.pop(task))
        if time.monotonic() - self._looked >= LOOK_SECONDS:
            self._look()
        self._work.runner.view.tally(self._tally())

    def _cancel(self) -> None:
        """Drop the tasks that wait; those under way get SIGINT, save and end."""
        for task in self._out:
            self._ray.cancel(task, force=False)

    def _groups(self) -> list[list[RunConfig]]:
        """What was begun, as it was; the rest in groups that the machines have room for."""
        store, work, found = self._runner.store, self._work, list[list[RunConfig]]()
        for group in alike(work.configs):
            begun = list(unfinished_groups(store, group))
            taken = {config.key for each in begun for config in each} | work.done.keys()
            rest = [config for config in group if config.key not in taken]
            alone = [config for config in rest if store.folder(config).checkpoint.exists()]
            fresh = [config for config in rest if config not in alone]
            if not is_grouped(group[0], len(fresh), "auto", self._machines.device):
                alone, fresh = rest, []
            found += [*begun, *([config] for config in alone), *self._machines.cut(fresh, len(work.missing))]
        return found

    def _submit(self, group: Group) -> None:
        # Ray tries nothing again: it is done here, from what was saved.
        options = {**self._machines.needs(group.configs), "max_retries": 0, "name": f"fopng {_name(group.configs)}"}
        arguments = (self._runner, group.configs, self._work.experiment, Path.cwd(), self._text)
        self._out[self._task.options(**options).remote(*arguments)] = group

    def _ended(self) -> list[Any]:
        """The tasks that have ended, after waiting for one for a short while."""
        if not self._out:
            time.sleep(POLL_SECONDS)
            return []
        self._ray.wait(list(self._out), num_returns=1, timeout=POLL_SECONDS)
        ready, _ = self._ray.wait(list(self._out), num_returns=len(self._out), timeout=0)
        return list(ready)

    def _take(self, task: Any, group: Group) -> None:
        errors = self._ray.exceptions
        try:
            results, notices = self._ray.get(task)
            self._counts["done"] += 1
            for sentence in notices:
                self._work.runner.notice(sentence)
            for result in results:
                self._result(result)
        except errors.TaskCancelledError:
            self._again(group, [group])
        except errors.RayTaskError as error:
            self._after_error(group, error.cause, str(error))
        except errors.RuntimeEnvSetupError as error:
            raise ClusterError(f"A worker could not be set up: {error}") from error
        except errors.OutOfMemoryError as error:
            self._after_failure(group, error, str(error))
        except errors.RayError as error:
            self._after_loss(group, f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}")

    def _after_error(self, group: Group, error: Exception, traceback: str) -> None:
        if isinstance(error, DataError | ClusterError):
            raise ClusterError(f"A worker failed as every other would: {error}")
        if isinstance(error, HeldError):
            if not group.held:
                self._work.runner.notice(f"{_name(group.configs)} is being done elsewhere; waiting for it. {error}")
            self._later.append(replace(group, held=True))
        elif isinstance(error, Interrupted):
            self._again(group, [group])
        else:
            self._after_failure(group, error, traceback)

    def _after_failure(self, group: Group, error: Exception, traceback: str) -> None:
        message = f"{type(error).__name__}: {error}"
        for config in self._missing(group):
            folder = self._runner.store.folder(config)
            folder.path.mkdir(parents=True, exist_ok=True)
            facts = {"try": group.failures + 1, "runs": len(group.configs), "error": message, "traceback": traceback}
            append_line(folder.log, "failed", facts)
        next_ = group.after_failure()
        if next_:
            self._work.runner.notice(f"{_name(group.configs)} failed: {message} It is tried again.")
        self._again(group, next_, message)

    def _after_loss(self, group: Group, message: str) -> None:
        next_ = group.after_loss(self._saved(group.configs))
        if next_ and not self._stopping:
            self._work.runner.notice(f"{_name(group.configs)}: the worker was lost ({message}). It is submitted again.")
        self._again(group, next_, f"its worker was lost each time ({message})")

    def _again(self, group: Group, next_: Sequence[Group], message: str = "") -> None:
        """Submit what is still missing; give it up if there is nothing to try next."""
        missing = {config.key for config in self._missing(group)}
        for each in [] if self._stopping else next_:
            if any(config.key in missing for config in each.configs):
                self._submit(each)
        if not next_:
            self._counts["failed"] += 1
            for config in [config for config in group.configs if config.key in missing]:
                self._work.failed.append(config)
                log = self._runner.store.folder(config).log
                self._work.runner.notice(
                    f"{label(config)} failed {MOST_FAILURES} times and is left out: {message} The tracebacks are in {log}"
                )

    def _missing(self, group: Group) -> list[RunConfig]:
        """The runs of a group that have no result, after looking for those that were written before it ended badly."""
        for config in group.configs:
            if config.key not in self._work.done and (result := self._runner.result(config)) is not None:
                self._result(result)
        return [config for config in group.configs if config.key not in self._work.done]

    def _result(self, result: RunResult) -> None:
        if result.config.key not in self._work.done:
            self._work.take(result)

    def _look(self) -> None:
        """See how far runs are, and try again those that others were doing."""
        self._looked = time.monotonic()
        again, self._later = self._later, []
        for group in again:
            self._again(group, [group])
        under_way = [c for group in self._out.values() if (c := self._first_held(group)) is not None]
        self._shares = [_share_done(self._runner.store.folder(config).log) for config in under_way]

    def _first_held(self, group: Group) -> RunConfig | None:
        folders = self._runner.store.folder
        held = (config for config in group.configs if is_held(folders(config).path / "lock"))
        return next(held, None)

    def _tally(self) -> Tally:
        failed, done = len(self._work.failed), self._runs - len(self._work.missing)
        running = min(len(self._shares), len(self._out))
        sizes = sum(len(group.configs) for group in self._out.values()) / max(1, len(self._out))
        return Tally(
            **self._counts,
            running=running,
            waiting=len(self._out) - running + len(self._later),
            runs=self._runs,
            runs_done=done,
            progress=min(self._runs, done + failed + sizes * sum(self._shares)),
        )

    def _saved(self, configs: Sequence[RunConfig]) -> float:
        store = self._runner.store
        folders = [GroupFolder.of(store, configs).path, *(store.folder(config).path for config in configs)]
        times = [path.stat().st_mtime for folder in folders for path in folder.glob("checkpoint*")]
        return max(times, default=0.0)


def _share_done(log: Path) -> float:
    """The share of a run's steps that its log knows of."""
    steps = done = 0
    for line in read_log(log) if log.exists() else ():
        if line["event"] == "run started":
            steps, done = line["steps"], line["done"]
        elif line["event"] == "step":
            done = line["step"]
    return done / steps if steps else 0.0


def _name(configs: Sequence[RunConfig]) -> str:
    return label(configs[0]) + (f" and {len(configs) - 1} more" if len(configs) > 1 else "")
