"""Doing runs: from configurations to results on disk, each done once, whoever else is at work there."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import final

import torch

from fopng.lab.data.errors import DataError
from fopng.lab.engine import SAVE_SECONDS, Interrupted, Outcome, train
from fopng.lab.engine.batched import free_memory
from fopng.lab.engine.observers import JsonLog, Observer, Tracked, make_trackers
from fopng.lab.engine.streams import Turns, in_turns
from fopng.lab.runs.batched import Together
from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.environment import describe_environment
from fopng.lab.runs.groups import EngineName, WaveFolder, alike, check_engine, clear_ended, stand_side_by_side
from fopng.lab.runs.request import build
from fopng.lab.runs.result import DamagedFileError, RunResult
from fopng.lab.runs.store import RunFolder, Store
from fopng.lab.storage.locks import HeldError

LOGGED_STEPS = 100
"""One step in so many is written to the log, with what it measured."""

POLL_SECONDS = 0.5


def unheard(message: str) -> None:
    """Tell nobody."""


def unseen(result: RunResult) -> None:
    """Show nobody."""


def never() -> bool:
    """Go on."""
    return False


@final
@dataclass(frozen=True, kw_only=True)
class Workshop:
    """Where and how runs are done; nothing here can change a number on one machine."""

    store: Store
    device: torch.device
    data_dir: Path | None = None
    trackers: Sequence[str] = ()
    """Names out of `fopng.lab.engine.observers.TRACKERS`: who else is told."""
    observers: Sequence[Observer] = ()
    notice: Callable[[str], None] = unheard
    """Told in a sentence what somebody may want to know."""
    should_stop: Callable[[], bool] = never
    save_seconds: float = SAVE_SECONDS
    engine: EngineName = "auto"
    """`replicas`: runs that are alike side by side; `single`: one after another; `auto`: what is faster."""
    memory_limit: int | None = None
    """Bytes that runs side by side may take; None for what the device has."""
    lanes: int = 1
    """Groups of runs side by side that a GPU has at a time, each on a stream of its own."""
    ended: Callable[[RunResult], None] = unseen
    """Told what each run measured, as it ends."""
    keep_going: bool = False
    """Whether a run that fails is told and left out of the results, instead of ending everything."""

    def __post_init__(self) -> None:
        check_engine(self.engine)

    def watched_by(self, observer: Observer) -> Workshop:
        """The same workshop with an observer more."""
        return dataclasses.replace(self, observers=(*self.observers, observer))

    def unfinished(self, configs: Iterable[RunConfig]) -> list[RunConfig]:
        """Those whose result is not there."""
        return [config for config in configs if self._result(self.store.folder(config)) is None]

    def do(self, configs: Sequence[RunConfig], *, again: bool = False) -> list[RunResult]:
        """The results of these runs, in their order; those that are finished are not done again unless asked.

        With `keep_going` a run that fails has none. A run that another process is doing is left to it: first everything
        else is done, then its result waited for.
        """
        done: dict[str, RunResult] = {}
        held: list[tuple[RunConfig, HeldError]] = []
        alone: list[RunConfig] = []
        free = free_memory(self.device) if self.memory_limit is None else self.memory_limit

        def work(group: list[RunConfig], turns: Turns) -> None:
            together = Together(self, turns, free, again=again)
            self._do_together(together, group)
            done.update(together.done)
            held.extend(together.held)
            alone.extend(together.left)

        stacked: list[list[RunConfig]] = []
        for group in self.groups(configs, again=again):
            if self.stand_side_by_side(group, again=again):
                stacked.append(group)
            else:
                alone += group
        in_turns(stacked, work, lanes=self.lanes, device=self.device)
        place = {config.key: number for number, config in enumerate(configs)}
        for config in sorted(alone, key=lambda config: place[config.key]):
            try:
                done |= self._unless_it_fails(config, partial(self.do_one, config, again=again))
            except HeldError as error:
                held.append((config, error))
        for config, holder in held:
            self.notice(f"{_label(config)} is being done elsewhere; waiting for it. {holder}")
            done |= self._unless_it_fails(config, partial(self._wait_for, config))
        clear_ended(self.store, configs)
        return [done[config.key] for config in configs if config.key in done]

    def _do_together(self, together: Together, group: list[RunConfig]) -> None:
        """Do runs side by side; where that fails and work is to go on, those that are missing are left to be done one by one."""
        try:
            together.do(group)
        except Exception as error:
            if not self._survives(error):
                raise
            self.notice(f"{_label(group[0])} and {len(group) - 1} more failed: {error} They are done one by one.")
            held = {config.key for config, _ in together.held}
            together.left = [c for c in group if c.key not in together.done and c.key not in held]

    def _unless_it_fails(self, config: RunConfig, do: Callable[[], RunResult]) -> dict[str, RunResult]:
        try:
            return {config.key: do()}
        except Exception as error:
            if not self._survives(error):
                raise
            self.notice(f"{_label(config)} failed and is left out: {type(error).__name__}: {error}")
            return {}

    def _survives(self, error: Exception) -> bool:
        """Whether other runs may do better: not when work was stopped, nor when files cannot be read or written."""
        return self.keep_going and not isinstance(error, Interrupted | HeldError | OSError | DataError)

    def groups(self, configs: Sequence[RunConfig], *, again: bool = False) -> list[list[RunConfig]]:
        """The runs that are done side by side, in lists; all others stand alone."""
        if self.engine == "single":
            return [[config] for config in configs]
        found: list[list[RunConfig]] = []
        for group in alike(configs):
            found += [group] if self.stand_side_by_side(group, again=again) else [[config] for config in group]
        return found

    def stand_side_by_side(self, group: Sequence[RunConfig], *, again: bool = False) -> bool:
        """Whether runs that are alike are done side by side."""
        if self.engine == "single":
            return False
        missing = group if again else self.unfinished(group)
        if len(missing) == 1 and any(wave.has_any(missing) for wave in WaveFolder.begun(self.store, group[0])):
            return True
        return bool(missing) and stand_side_by_side(group[0], len(missing), self.engine, self.device)

    def do_one(self, config: RunConfig, *, again: bool = False) -> RunResult:
        """The result of one run; HeldError when another process is doing it."""
        folder = self.store.folder(config)
        with self.claim(folder, again=again) as result:
            if result is not None:
                return result
            outcome = train(
                build(config, self.data_dir),
                device=self.device,
                checkpoint=folder.checkpoint,
                observers=[*self.observers, *self.logs(folder)],
                should_stop=self.should_stop,
                notice=self.notice,
                save_seconds=self.save_seconds,
            )
            return self.finish(folder, outcome)

    def claim(self, folder: RunFolder, *, again: bool) -> AbstractContextManager[RunResult | None]:
        """Hold a run; its result, if it has one that can be read and is not to be done again."""
        return folder.claim(again=again or self._is_damaged(folder))

    def finish(self, folder: RunFolder, outcome: Outcome) -> RunResult:
        """Write what a run measured. For the process that claimed it."""
        result = result_of(folder.config, outcome, self.device)
        folder.finish(result)
        self.ended(result)
        return result

    def _wait_for(self, config: RunConfig) -> RunResult:
        while True:
            try:
                return self.do_one(config)
            except HeldError:
                if self.should_stop():
                    raise
                time.sleep(POLL_SECONDS)

    def _result(self, folder: RunFolder) -> RunResult | None:
        return None if self._is_damaged(folder) else folder.result()

    def _is_damaged(self, folder: RunFolder) -> bool:
        try:
            folder.result()
        except DamagedFileError as error:
            self.notice(f"{error} It is done again.")
            return True
        return False

    def logs(self, folder: RunFolder) -> list[Observer]:
        """Who writes down what happens in a run."""
        tracked = Tracked(runs=self.store.root, run=folder.path, key=folder.config.key, every=LOGGED_STEPS)
        return [JsonLog(folder.log, every=LOGGED_STEPS), *make_trackers(self.trackers, tracked)]


def result_of(config: RunConfig, outcome: Outcome, device: torch.device) -> RunResult:
    """What a run measured, with what it was and where."""
    return RunResult(
        config=config,
        accuracy=tuple(outcome.accuracy),
        validation_accuracy=None if outcome.validation_accuracy is None else tuple(outcome.validation_accuracy),
        initial_accuracy=outcome.initial_accuracy,
        accuracy_before=tuple(outcome.accuracy_before),
        measured={name: tuple(row) for name, row in outcome.measured.items()},
        seconds_by_phase=outcome.seconds_by_phase,
        peak_memory_bytes=outcome.peak_memory_bytes,
        environment=describe_environment(device),
        status=outcome.status,
    )


def _label(config: RunConfig) -> str:
    return f"{config.benchmark} {config.method} seed {config.seed}"
