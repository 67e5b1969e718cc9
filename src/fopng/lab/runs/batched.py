"""Runs that are alike, done side by side in waves: claimed, saved, halved where they do not fit, left where they cannot."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, final

import torch

from fopng.lab.engine.batched import Footprint, NotStackable, train_replicas
from fopng.lab.engine.streams import Turns
from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.groups import LARGEST_WAVE, WaveFolder, cut, forget_waves, taken_up
from fopng.lab.runs.request import build
from fopng.lab.runs.result import RunResult
from fopng.lab.storage.locks import HeldError

if TYPE_CHECKING:
    from fopng.lab.runs.runner import Workshop


@final
class Together:
    """One group of runs that are alike.

    Args:
        shop: where and how they are done.
        turns: those of other groups on the same device.
        free: the bytes that they have together; None where nobody knows.
        again: do finished runs again.

    Attributes:
        done: the results, by key.
        held: the runs that other processes are doing.
        left: the runs that must be done one by one.
    """

    def __init__(self, shop: Workshop, turns: Turns, free: int | None, *, again: bool) -> None:
        self._shop, self._turns, self._free, self._again = shop, turns, free, again
        self.done: dict[str, RunResult] = {}
        self.held: list[tuple[RunConfig, HeldError]] = []
        self.left: list[RunConfig] = []

    def do(self, group: Sequence[RunConfig]) -> None:
        """Do these runs, wave after wave."""
        waves: deque[list[RunConfig]] = deque()
        try:
            if not self._again:
                waves.extend(taken_up(self._shop.store, group))
            taken = {config.key for wave in waves for config in wave}
            waves.extend(self._cut([config for config in group if config.key not in taken]))
            while waves:
                waves.extendleft(reversed(self._do_or_halve(waves.popleft())))
        except NotStackable as error:
            self._shop.notice(f"{error} The runs are done one by one.")
            self.left = [config for config in group if config.key not in self.done and not self._is_held(config)]

    def _cut(self, configs: Sequence[RunConfig]) -> list[list[RunConfig]]:
        """What is to be done, in waves that fit on the device."""
        missing = configs if self._again else self._shop.unfinished(configs)
        open_ = {config.key for config in missing}
        self.left += [config for config in configs if config.key not in open_]
        return cut(missing, self._most(missing))

    def _most(self, configs: Sequence[RunConfig]) -> int:
        device, most = self._shop.device, LARGEST_WAVE.get(self._shop.device.type, 1)
        if len(configs) < 2 or self._free is None:
            return most
        plans = [build(config, self._shop.data_dir) for config in configs[:2]]
        fit = Footprint(plans, device, self._turns.lanes).count(self._free // self._turns.lanes)
        if fit < min(most, len(configs)):
            self._shop.notice(f"{len(configs)} runs do not fit on {device} side by side; at most {fit} do, in waves.")
        return min(most, fit)

    def _do_or_halve(self, wave: list[RunConfig]) -> list[list[RunConfig]]:
        """Do a wave; where the memory is not enough nothing is done, and its halves come back."""
        if self._fits(wave):
            return []
        # What the failed wave held was let go together with its error.
        gc.collect()
        if self._shop.device.type == "cuda":
            torch.cuda.empty_cache()
        if len(wave) == 1:
            self.left += wave
            return []
        halves = cut(wave, -(-len(wave) // 2))
        self._shop.notice(
            f"The memory of {self._shop.device} is not enough for {len(wave)} runs side by side; going on with {len(halves[0])}."
        )
        return halves

    def _fits(self, wave: list[RunConfig]) -> bool:
        try:
            self._do_wave(wave)
        except (RuntimeError, MemoryError) as error:
            if not _is_out_of_memory(error):
                raise
            return False
        return True

    def _do_wave(self, wave: list[RunConfig]) -> None:
        with ExitStack() as claims:
            missing, refused = self._claim(wave, claims)
            if not missing:
                return
            if self._again:
                forget_waves(self._shop.store, missing)
            folder = WaveFolder.of(self._shop.store, wave)
            if refused or not folder.path.exists():
                # A wave is taken up again as it was, with the runs that ended since; a new one is of those that are missing.
                wave, folder = missing, WaveFolder.of(self._shop.store, missing)
            try:
                self._train(wave, missing, folder)
            except (NotStackable, MemoryError, torch.OutOfMemoryError):
                folder.clear()
                raise

    def _claim(self, wave: Iterable[RunConfig], claims: ExitStack) -> tuple[list[RunConfig], bool]:
        """Hold the runs of a wave; gives those that are missing, and whether another process holds some."""
        missing, refused = [], False
        for config in wave:
            try:
                result = claims.enter_context(self._shop.claim(self._shop.store.folder(config), again=self._again))
            except HeldError as error:
                self.held.append((config, error))
                refused = True
                continue
            if result is None:
                missing.append(config)
            else:
                self.done[config.key] = result
        return missing, refused

    def _train(self, wave: Sequence[RunConfig], missing: Sequence[RunConfig], folder: WaveFolder) -> None:
        shop, folders = self._shop, {config.key: self._shop.store.folder(config) for config in missing}
        plans = [build(config, shop.data_dir) for config in wave]
        folder.begin()
        outcomes = train_replicas(
            plans,
            device=shop.device,
            checkpoint=folder.checkpoint,
            observers=shop.observers,
            own_observers=[shop.logs(folders[config.key]) if config.key in folders else [] for config in wave],
            should_stop=lambda: shop.should_stop() or self._turns.failed,
            notice=shop.notice,
            save_seconds=shop.save_seconds,
            turns=self._turns,
        )
        for config, outcome in zip(wave, outcomes, strict=True):
            if config.key in folders:
                self.done[config.key] = shop.finish(folders[config.key], outcome)
        folder.clear()

    def _is_held(self, config: RunConfig) -> bool:
        return any(config == held for held, _ in self.held)


def _is_out_of_memory(error: Exception) -> bool:
    """Whether there was no memory left: on a CPU, and while a step is captured, torch has no type of its own for that."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return any(words in str(error) for words in ("can't allocate memory", "out of memory"))
