"""Train like runs as one group in the batched engine; when memory runs out, halve the group and go on."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import final

import torch

from fopng.lab.engine import Plan
from fopng.lab.engine.batched import Footprint, NotStackable, train_replicas
from fopng.lab.engine.streams import StreamScheduler
from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.request import build
from fopng.lab.schedule.groups import LARGEST_GROUP, GroupFolder, cut, halves, unfinished_groups
from fopng.lab.schedule.runner import Work
from fopng.lab.storage.locks import HeldError


@final
class BatchedExecutor:
    """Does like runs in groups as large as fit.

    Args:
        work: what they belong to.
        streams: shares the device with other groups.
        free: the bytes that all groups have together; None if that is unknown.

    Attributes:
        held: by key, the runs that other processes are doing.
        left: the runs that must be done one by one.
    """

    def __init__(self, work: Work, streams: StreamScheduler, free: int | None) -> None:
        self._work, self._runner, self._streams, self._free = work, work.runner, streams, free
        self.held: dict[str, HeldError] = {}
        self.left: list[RunConfig] = []
        self._plans: dict[str, Plan] = {}
        """Those that were built to see how many runs fit."""

    def do(self, configs: Sequence[RunConfig]) -> None:
        """Do the missing ones of these runs: first the groups that an earlier process left unfinished, as they were."""
        groups = deque(unfinished_groups(self._runner.store, configs))
        taken = {config.key for group in groups for config in group} | self._work.done.keys()
        rest = [config for config in configs if config.key not in taken]
        try:
            groups.extend(cut(rest, self._most(rest)))
            while groups:
                groups.extendleft(reversed(self._do_or_halve(groups.popleft())))
        except NotStackable as error:
            self._runner.notice(f"{error} The runs are done one by one.")
            self.left = [config for config in configs if config.key not in self._work.done | self.held]

    def _most(self, configs: Sequence[RunConfig]) -> int:
        """How many of these runs make a group."""
        device, streams = self._runner.device, self._streams.lanes
        most = LARGEST_GROUP.get(device.type, 1)
        if len(configs) < 2 or self._free is None:
            return most
        self._plans = {config.key: build(config, self._runner.data_dir) for config in configs[:2]}
        fit = Footprint(list(self._plans.values()), device, streams).count(self._free // streams)
        if fit < min(most, len(configs)):
            self._runner.notice(f"{len(configs)} runs do not fit on {device} as one group; at most {fit} do.")
        return min(most, fit)

    def _do_or_halve(self, group: list[RunConfig]) -> list[list[RunConfig]]:
        """Do a group; if its memory is not enough, return its halves and have done nothing."""
        if self._fits(group):
            return []
        # What the failed group held was let go together with its error.
        gc.collect()
        if self._runner.device.type == "cuda":
            torch.cuda.empty_cache()
        if len(group) == 1:
            self.left += group
            return []
        smaller = halves(group)
        self._runner.notice(
            f"The memory of {self._runner.device} is not enough for {len(group)} runs as one group; "
            f"going on with {len(smaller[0])}."
        )
        return smaller

    def _fits(self, group: list[RunConfig]) -> bool:
        try:
            self._do_group(group)
        except (RuntimeError, MemoryError) as error:
            if not _is_out_of_memory(error):
                raise
            return False
        return True

    def _do_group(self, group: list[RunConfig]) -> None:
        with ExitStack() as claims:
            missing, refused = self._claim(group, claims)
            if not missing:
                return
            folder = GroupFolder.of(self._runner.store, group)
            if refused or not folder.path.exists():
                # A group that was begun continues with its ended runs; a new one is made of the missing runs.
                group, folder = missing, GroupFolder.of(self._runner.store, missing)
            try:
                self._train(group, {config.key for config in missing}, folder)
            except (NotStackable, MemoryError, torch.OutOfMemoryError):
                folder.clear()
                raise

    def _claim(self, group: Iterable[RunConfig], claims: ExitStack) -> tuple[list[RunConfig], bool]:
        """Hold the runs of a group. Returns the missing ones, and whether another process holds some."""
        missing, refused = [], False
        for config in group:
            try:
                if self._work.claim(config, claims):
                    missing.append(config)
            except HeldError as error:
                self.held[config.key] = error
                refused = True
        return missing, refused

    def _plan(self, config: RunConfig) -> Plan:
        built = config.key in self._plans
        return self._plans.pop(config.key) if built else build(config, self._runner.data_dir)

    def _train(self, group: Sequence[RunConfig], missing: set[str], folder: GroupFolder) -> None:
        runner = self._runner
        plans = [self._plan(config) for config in group]
        folder.begin()
        outcomes = train_replicas(
            plans,
            device=runner.device,
            checkpoint=folder.checkpoint,
            observers=[*runner.observers, runner.view],
            own_observers=[self._work.logs(config) if config.key in missing else [] for config in group],
            should_stop=lambda: runner.should_stop() or self._streams.failed,
            notice=runner.notice,
            save_seconds=runner.save_seconds,
            streams=self._streams,
        )
        for config, outcome in zip(group, outcomes, strict=True):
            if config.key in missing:
                self._work.finish(config, outcome)
        folder.clear()


def _is_out_of_memory(error: Exception) -> bool:
    """Whether there was no memory left: on a CPU, and while a step is captured, torch has no type of its own for that."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return any(words in str(error) for words in ("can't allocate memory", "out of memory"))
