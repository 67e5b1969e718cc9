"""Do runs: each once, in one store, by whichever executor is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, final, get_args

import torch

from fopng.lab.choices import EngineName
from fopng.lab.data.errors import DataError
from fopng.lab.engine import SAVE_SECONDS, Interrupted, Outcome
from fopng.lab.engine.observers import JsonLog, Observer, Tracked, make_trackers
from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.environment import describe_environment
from fopng.lab.runs.request import require_data
from fopng.lab.runs.result import DamagedFileError, RunResult
from fopng.lab.runs.store import Store
from fopng.lab.schedule.errors import FailedRunsError
from fopng.lab.schedule.groups import alike, forget_groups, is_grouped, remove_ended
from fopng.lab.schedule.view import View
from fopng.lab.storage.locks import HeldError

LOGGED_STEPS = 100
"""One step in this many is written to the log, with what it measured."""


def raise_for(failed: Sequence[RunConfig]) -> None:
    """Raise when runs failed, after everything else was done; why they did was told when it happened."""
    if failed:
        names = ", ".join(sorted({f"{config.benchmark} {config.method}" for config in failed}))
        raise FailedRunsError(f"{len(failed)} runs failed ({names}). The same command tries them again.")


def ignore(message: str) -> None:
    """Tell nobody."""


def never() -> bool:
    """Do not stop."""
    return False


@final
@dataclass(frozen=True, kw_only=True)
class Runner:
    """Where and how runs are done. Nothing here changes a number on one machine."""

    store: Store
    device: torch.device
    data_dir: Path | None = None
    threads: int | None = None
    """Threads of the CPU; None for what suits the model."""
    jobs: int = 1
    """Processes that do runs at the same time; on a GPU, groups that share it, each on a stream."""
    engine: EngineName = "auto"
    """`replicas`: like runs as a group. `single`: one run after another. `auto`: what is faster. `ray`: on a Ray cluster."""
    address: str | None = None
    """The Ray cluster; None for RAY_ADDRESS, or this machine alone."""
    gpus: bool | None = None
    """On a cluster: whether runs are done on GPUs; None for yes if it has any."""
    trackers: Sequence[str] = ()
    """Names in `fopng.lab.engine.observers.TRACKERS`."""
    observers: Sequence[Observer] = ()
    view: View = field(default_factory=View)
    notice: Callable[[str], None] = ignore
    """Told each thing that a person should know, as a sentence."""
    should_stop: Callable[[], bool] = never
    save_seconds: float = SAVE_SECONDS
    memory_limit: int | None = None
    """Bytes that the runs of a group may take together; None for what the device has."""
    keep_going: bool = False
    """Report a run that fails and leave it out, instead of raising."""
    wait: bool = True
    """Wait for runs that another process is doing, instead of raising HeldError when all others are done."""

    def __post_init__(self) -> None:
        if self.engine not in get_args(EngineName):
            raise ValueError(f"Expected an engine out of {', '.join(get_args(EngineName))}, got {self.engine!r}.")
        if self.address is not None and self.engine != "ray":
            raise ValueError(f"Expected --engine ray with --address, got {self.engine}. Add it.")
        if self.jobs > 1 and self.engine == "ray":
            raise ValueError(f"Expected no --jobs with --engine ray, got {self.jobs}. Ray starts as many as fit.")

    def do(
        self, configs: Sequence[RunConfig], experiment: str = "comparison", *, again: bool = False
    ) -> list[RunResult]:
        """The results of these runs, in their order. Finished runs are not done again.

        Args:
            configs: the runs.
            experiment: the experiment that asks for them; its name is stored with each result.
            again: do all of them. The earlier result of a run is forgotten when the run begins.
        """
        # On a cluster a group may be submitted several times, and must forget once.
        here = self.engine != "ray"
        work = Work(self, list({config.key: config for config in configs}.values()), experiment, again and here)
        if again and not here:
            self._forget(work.configs)
        elif not again:
            work.read()
        if work.missing:
            require_data(work.missing, self.data_dir)
            with self.view.over(len(work.missing)):
                self._executor()(work)
        if not self.keep_going:
            raise_for(work.failed)
        remove_ended(self.store, configs)
        return [work.done[config.key] for config in configs if config.key in work.done]

    def unfinished(self, configs: Iterable[RunConfig]) -> list[RunConfig]:
        """The runs that have no result."""
        return [config for config in configs if self.result(config) is None]

    def result(self, config: RunConfig) -> RunResult | None:
        """The result of a run; None if it has none that can be read."""
        try:
            return self.store.folder(config).result()
        except DamagedFileError as error:
            self.notice(f"{error} It is done again.")
            return None

    def groups(self, configs: Sequence[RunConfig]) -> list[list[RunConfig]]:
        """These runs in lists: like runs that are trained as a group, and all others alone."""
        found: list[list[RunConfig]] = []
        for group in alike(configs):
            together = is_grouped(group[0], len(group), self.engine, self.device)
            found += [group] if together else [[config] for config in group]
        return found

    def survives(self, error: Exception) -> bool:
        """Whether the other runs go on after this error."""
        return self.keep_going and not isinstance(error, Interrupted | HeldError | OSError | DataError)

    def _executor(self) -> Executor:
        if self.engine == "ray":
            from fopng.lab.schedule.ray import do_on_ray

            return do_on_ray
        if self.jobs > 1 and (self.engine == "single" or self.device.type != "cuda"):
            from fopng.lab.schedule.processes import do_in_processes

            return do_in_processes
        from fopng.lab.schedule.inline import do_inline

        return do_inline

    def _forget(self, configs: Sequence[RunConfig]) -> None:
        """Remove what is known of these runs. Those that another process is doing are left to it."""
        for group in alike(configs):
            with ExitStack() as held:
                mine = []
                for config in group:
                    with suppress(HeldError):
                        held.enter_context(self.store.folder(config).claim(again=True))
                        mine.append(config)
                if mine:
                    forget_groups(self.store, mine)


@final
@dataclass
class Work:
    """The runs of one call of `Runner.do`, and their results so far."""

    runner: Runner
    configs: list[RunConfig]
    experiment: str = "comparison"
    again: bool = False
    """Forget the earlier result of each run as it begins."""
    begun: set[str] = field(default_factory=set)
    """The keys of the runs that have forgotten theirs."""
    done: dict[str, RunResult] = field(default_factory=dict)
    failed: list[RunConfig] = field(default_factory=list)

    @property
    def missing(self) -> list[RunConfig]:
        """The runs without a result, in their order."""
        return [config for config in self.configs if config.key not in self.done]

    def read(self) -> None:
        """Take the results that are there, each read once; they get the experiment's name."""
        for config in self.configs:
            if (result := self.runner.result(config)) is not None:
                self.done[config.key] = self._named(result)
                self._tidy(config)

    def _named(self, result: RunResult) -> RunResult:
        return self.runner.store.folder(result.config).add_experiments(result, self.experiment)

    def _tidy(self, config: RunConfig) -> None:
        """Remove what a kill after the writing of a result left: a checkpoint, a lock."""
        folder = self.runner.store.folder(config)
        if any(folder.path.glob("checkpoint*")) or (folder.path / "lock").exists():
            with suppress(HeldError), folder.claim() as result:
                if result is not None:
                    folder.checkpoint.clear()

    def claim(self, config: RunConfig, held: ExitStack) -> bool:
        """Hold a run while `held` lasts. False if it has its result already; HeldError if another process is doing it."""
        if config.key in self.done:
            return False
        folder, fresh = self.runner.store.folder(config), self.again and config.key not in self.begun
        try:
            result = held.enter_context(folder.claim(again=fresh))
        except HeldError:
            self.begun.add(config.key)  # what another process makes now is not forgotten
            raise
        except DamagedFileError:
            result = held.enter_context(folder.claim(again=True))
        self.begun.add(config.key)
        if fresh:
            forget_groups(self.runner.store, [config])
        if result is not None:
            self.take(result)
        return result is None

    def finish(self, config: RunConfig, outcome: Outcome) -> None:
        """Write what a run measured. Only for the process that claimed it."""
        result = result_of(config, outcome, self.runner.device, self.experiment)
        self.runner.store.folder(config).finish(result)
        self.take(result)

    def take(self, result: RunResult) -> None:
        """A run has ended."""
        self.done[result.config.key] = result
        self.runner.view.ended(result)

    def fail(self, config: RunConfig, error: Exception) -> None:
        """Leave a run out, and say why; raise if that is not wanted."""
        if not self.runner.survives(error):
            raise error
        self.failed.append(config)
        self.runner.notice(f"{label(config)} failed and is left out: {type(error).__name__}: {error}")

    def logs(self, config: RunConfig) -> list[Observer]:
        """The observers that record one run."""
        folder, runner = self.runner.store.folder(config), self.runner
        tracked = Tracked(runs=runner.store.root, run=folder.path, key=config.key, every=LOGGED_STEPS)
        return [JsonLog(folder.log, every=LOGGED_STEPS), *make_trackers(runner.trackers, tracked)]


class Executor(Protocol):
    """Does the missing runs of some work."""

    def __call__(self, work: Work) -> None: ...


def result_of(config: RunConfig, outcome: Outcome, device: torch.device, experiment: str) -> RunResult:
    """What a run measured, with what it was and where."""
    return RunResult(
        config=config,
        accuracy=tuple(outcome.accuracy),
        validation_accuracy=None if outcome.validation_accuracy is None else tuple(outcome.validation_accuracy),
        lost=tuple(outcome.lost),
        validation_lost=None if outcome.validation_lost is None else tuple(outcome.validation_lost),
        initial_accuracy=outcome.initial_accuracy,
        accuracy_before=tuple(outcome.accuracy_before),
        measured={name: tuple(row) for name, row in outcome.measured.items()},
        seconds_by_phase=outcome.seconds_by_phase,
        peak_memory_bytes=outcome.peak_memory_bytes,
        environment=describe_environment(device),
        status=outcome.status,
        experiments=(experiment,),
    )


def label(config: RunConfig) -> str:
    """A run in words."""
    return f"{config.benchmark} {config.method} seed {config.seed}"
