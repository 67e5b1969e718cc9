"""The driver's side: waves sent out, their results written to the store, each once, whatever dies meanwhile."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from typing import Literal, cast, final

from fopng.lab.cluster.errands import Cluster, Ending, Errand, Failure, Letter, Lost
from fopng.lab.cluster.needs import Estimator, form_waves
from fopng.lab.cluster.parcels import Parcel, pack
from fopng.lab.cluster.pending import MOST_FAILURES, Pending
from fopng.lab.engine import Interrupted
from fopng.lab.engine.observers import append_line
from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.groups import alike, clear_ended, forget_waves, stand_side_by_side, taken_up
from fopng.lab.runs.result import RunResult
from fopng.lab.runs.runner import Workshop
from fopng.lab.storage import locks
from fopng.lab.storage.locks import HeldError

POLL_SECONDS = 0.2

HELD_SECONDS = 2.0
"""The time between two looks at runs that other processes are doing."""

AHEAD = 2
"""Waves that are sent out for each that there is room for: the next is at hand when one ends, and its runs are held."""


class ClusterError(RuntimeError):
    """There is no cluster, or every wave would fail in the same way."""


@final
@dataclass(frozen=True)
class Failed:
    """A run that was given up."""

    config: RunConfig
    message: str


@final
@dataclass(frozen=True, kw_only=True)
class Tally:
    """How things stand: waves, and runs."""

    done: int
    running: int
    waiting: int
    failed: int
    runs: int
    """To be done by this process."""
    runs_done: int
    progress: float
    """Runs' worth of work that is done, with the shares of those that are under way."""


@final
@dataclass
class _Out:
    """A wave that was sent out; its fraction is unknown until its first letter."""

    pending: Pending
    fraction: float | None = None


@final
class Dispatcher:
    """Has runs done on a cluster.

    Args:
        shop: the store, the kind of device that workers use, whom to tell and when to stop.
        cluster: who does them.
        threads: of the CPU for each wave.
        show: told how things stand, several times a second.
    """

    def __init__(
        self, shop: Workshop, cluster: Cluster, *, threads: int = 1, show: Callable[[Tally], None] = lambda tally: None
    ) -> None:
        self._shop, self._cluster, self._threads, self._show = shop, cluster, threads, show
        self._estimator = Estimator(shop.device, threads, shop.data_dir)
        self._waiting: deque[Pending] = deque()
        self._out: dict[str, _Out] = {}
        self._claims: dict[str, ExitStack] = {}
        self._held: dict[str, RunConfig] = {}
        self._looked = time.monotonic()
        self._results: dict[str, RunResult] = {}
        self._names = count()
        self._counts = {"done": 0, "failed": 0, "runs": 0}
        self._stopping = False
        self.failed: list[Failed] = []

    def do(self, configs: Sequence[RunConfig], *, again: bool = False) -> list[RunResult]:
        """The results of these runs, in their order; a run that was given up has none, and is in `failed`."""
        locks.allow_many()
        self._waiting.extend(self._formed(configs, again=again))
        self._counts["runs"] = len({c.key for pending in self._waiting for c in pending.configs})
        try:
            if again:
                self._forget()
            while self._waiting or self._out or self._held:
                self._turn()
        finally:
            for key in list(self._claims):
                self._release(key)
        if self._stopping:
            raise Interrupted(f"Stopped with {len(self._results)} of {self._counts['runs']} runs done.")
        clear_ended(self._shop.store, configs)
        found = [self._results.get(c.key) or self._shop.store.folder(c).result() for c in configs]
        return [result for result in found if result is not None]

    def _turn(self) -> None:
        if self._shop.should_stop() and not self._stopping:
            self._stop()
        self._send_out()
        ended = self._cluster.ended(POLL_SECONDS)
        # What an errand wrote arrived before it ended, so that nothing is read too late.
        for letter in self._cluster.letters():
            self._read(letter)
        for name, ending in ended.items():
            self._take(self._out.pop(name).pending, ending)
        self._look_after_held()
        self._show(self._tally())

    def _stop(self) -> None:
        self._stopping = True
        self._waiting.clear()
        self._held.clear()
        self._cluster.stop()

    # Sending out

    def _formed(self, configs: Sequence[RunConfig], *, again: bool) -> list[Pending]:
        """The waves: those that an earlier process began, and what else is missing."""
        missing = {config.key for config in (configs if again else self._shop.unfinished(configs))}
        waves: list[list[RunConfig]] = []
        for group in alike(configs):
            begun = [] if again else self._begun(group, missing)
            taken = {config.key for wave in begun for config in wave}
            rest = [config for config in group if config.key in missing - taken]
            waves += begun
            if stand_side_by_side(group[0], len(rest), self._shop.engine, self._shop.device):
                waves += form_waves(rest, self._estimator, self._cluster, runs=len(missing))
            else:
                waves += [[config] for config in rest]
        return [Pending(wave) for wave in waves]

    def _begun(self, group: Sequence[RunConfig], missing: set[str]) -> list[list[RunConfig]]:
        """What was saved, alone or together, goes on as it was."""
        store, together = self._shop.store, list(taken_up(self._shop.store, group))
        taken = {config.key for wave in together for config in wave}
        rest = [config for config in group if config.key in missing - taken]
        return together + [[config] for config in rest if store.folder(config).checkpoint.exists()]

    def _forget(self) -> None:
        """Hold what is to be done again, and forget what is known of it. What others hold they do again themselves."""
        for pending in self._waiting:
            if claimed := self._claimed(pending.configs, again=True):
                forget_waves(self._shop.store, claimed)

    def _send_out(self) -> None:
        while self._waiting and len(self._out) < self._most_out(self._waiting[0]):
            self._send(self._waiting.popleft())

    def _most_out(self, pending: Pending) -> int:
        return AHEAD * max(1, self._cluster.room(self._estimator.needs(pending.configs)))

    def _send(self, pending: Pending) -> None:
        missing = self._claimed(pending.configs)
        pending = pending.without(set(self._held))
        if not missing:
            return
        errand = Errand(
            name=str(next(self._names)),
            configs=pending.configs,
            parcel=pack(self._shop.store, pending.configs),
            engine=self._shop.engine,
            device=cast(Literal["cpu", "cuda"], self._shop.device.type),
            threads=self._threads,
            trackers=tuple(self._shop.trackers),
            save_seconds=self._shop.save_seconds,
        )
        self._cluster.submit(errand, self._estimator.needs(pending.configs))
        self._out[errand.name] = _Out(pending)

    def _claimed(self, configs: Iterable[RunConfig], *, again: bool = False) -> list[RunConfig]:
        """Hold these runs until they have a result; gives those that have none yet, without those that others hold."""
        missing = []
        for config in configs:
            if config.key not in self._claims and config.key not in self._results:
                self._claim(config, again=again)
            if config.key in self._claims:
                missing.append(config)
        return missing

    def _claim(self, config: RunConfig, *, again: bool) -> None:
        with ExitStack() as claim:
            try:
                result = claim.enter_context(self._shop.claim(self._shop.store.folder(config), again=again))
            except HeldError as error:
                if config.key not in self._held:
                    self._shop.notice(f"{_label(config)} is being done elsewhere; waiting for it. {error}")
                self._held[config.key] = config
                return
            if result is None:
                self._claims[config.key] = claim.pop_all()
            else:
                self._results[config.key] = result

    def _release(self, key: str) -> None:
        if key in self._claims:
            self._claims.pop(key).close()

    def _look_after_held(self) -> None:
        if self._held and time.monotonic() - self._looked >= HELD_SECONDS:
            self._looked = time.monotonic()
            free = self._claimed(list(self._held.values()))
            known = {config.key for config in free} | set(self._results)
            self._held = {key: config for key, config in self._held.items() if key not in known}
            self._waiting.extend(Pending([config]) for config in free)

    # Receiving

    def _read(self, letter: Letter) -> None:
        """Take note; a letter of an errand that is over, or was given to somebody else, says nothing any more."""
        if letter.errand not in self._out:
            return
        out = self._out[letter.errand]
        if out.fraction is not None and any("checkpoint" in name for name in letter.parcel.whole):
            out.pending = out.pending.saved()
        out.fraction = letter.fraction
        self._keep(letter)

    def _take(self, pending: Pending, ending: Ending) -> None:
        if isinstance(ending, Lost):
            self._after_loss(pending, ending)
            return
        self._keep(ending.last)
        missing = pending.without(set(self._results))
        if ending.failure is not None:
            self._after_failure(missing, ending.failure)
        elif not missing.configs:
            self._counts["done"] += 1
            clear_ended(self._shop.store, pending.configs)
        elif not self._stopping:
            # It was stopped and not by us, as when its machine is being shut down.
            self._waiting.append(pending)

    def _after_loss(self, pending: Pending, lost: Lost) -> None:
        if self._stopping:
            return
        next_ = pending.after_loss()
        if next_:
            self._shop.notice(f"{_name(pending.configs)}: the worker was lost ({lost.message}). It is sent out again.")
        else:
            self._give_up(pending.configs, f"its worker was lost each time ({lost.message})")
        self._waiting.extendleft(reversed(next_))

    def _after_failure(self, pending: Pending, failure: Failure) -> None:
        facts = {"runs": len(pending.configs), "error": failure.message, "traceback": failure.traceback}
        for config in pending.configs:
            append_line(self._shop.store.folder(config).log, "failed", {"try": pending.failures + 1, **facts})
        if failure.ends_everything:
            raise ClusterError(f"A worker failed as every other would: {failure.message}")
        next_ = pending.after_failure()
        if not next_:
            self._give_up(pending.configs, failure.message)
        elif not self._stopping:
            self._shop.notice(f"{_name(pending.configs)} failed: {failure.message} It is tried again.")
            self._waiting.extendleft(reversed(next_))

    def _give_up(self, configs: Sequence[RunConfig], message: str) -> None:
        self._counts["failed"] += 1
        for config in configs:
            self.failed.append(Failed(config, message))
            log = self._shop.store.folder(config).log
            self._shop.notice(
                f"{_label(config)} failed {MOST_FAILURES} times and is left out: {message} The tracebacks are in {log}"
            )
            self._release(config.key)

    def _keep(self, letter: Letter) -> None:
        """Write what came to the store: logs and checkpoints, then the results."""
        for sentence in letter.notices:
            self._shop.notice(sentence)
        results, rest = letter.parcel.take_results()
        held = Parcel(*({n: c for n, c in files.items() if self._is_ours(n)} for files in (rest.whole, rest.added)))
        held.unpack(self._shop.store.root)
        for text in results.values():
            self._finish(RunResult.from_dict(json.loads(text)))

    def _is_ours(self, name: str) -> bool:
        folder = name.split("/")[2]
        return folder in self._claims or folder.startswith("wave-")

    def _finish(self, result: RunResult) -> None:
        """Write a result, once: it is written by the process that holds the run, and then let go."""
        key = result.config.key
        if key in self._claims:
            self._shop.store.folder(result.config).finish(result)
            self._results[key] = result
            self._release(key)

    def _tally(self) -> Tally:
        running = [out for out in self._out.values() if out.fraction is not None]
        under_way = sum((out.fraction or 0.0) * len(out.pending.configs) for out in running)
        return Tally(
            done=self._counts["done"],
            running=len(running),
            waiting=len(self._waiting) + len(self._out) - len(running) + len(self._held),
            failed=self._counts["failed"],
            runs=self._counts["runs"],
            runs_done=len(self._results),
            progress=len(self._results) + len(self.failed) + under_way,
        )


def _label(config: RunConfig) -> str:
    return f"{config.benchmark} {config.method} seed {config.seed}"


def _name(configs: Sequence[RunConfig]) -> str:
    return _label(configs[0]) + (f" and {len(configs) - 1} more" if len(configs) > 1 else "")
