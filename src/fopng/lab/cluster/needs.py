"""What waves need, and how many runs make one: enough to be worth a worker, few enough for every worker to have some."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import final

import torch

from fopng.lab.cluster.errands import Cluster, Needs
from fopng.lab.engine.batched import Footprint
from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.groups import LARGEST_WAVE, cut
from fopng.lab.runs.request import build

PROCESS_BYTES = {"cpu": 2**29, "cuda": 3 * 2**30}
"""Main memory of a process that has torch, and CUDA's libraries, loaded."""

ALONE_BYTES = 2**30
"""What a run takes whose memory cannot be estimated, such as one that cannot stand beside others."""


@final
class Estimator:
    """The needs of waves; of runs that are alike they are estimated once.

    Args:
        device: where the runs are done, on the workers.
        threads: of the CPU for each wave.
        data_dir: where to look for datasets first.
    """

    def __init__(self, device: torch.device, threads: int, data_dir: Path | None) -> None:
        self._device, self._threads, self._data_dir = device, threads, data_dir
        self._known: dict[str, tuple[int, int]] = {}

    def needs(self, wave: Sequence[RunConfig]) -> Needs:
        """What this wave takes."""
        common, each = self._bytes(wave)
        # On a GPU the runs themselves are in its own memory, which the worker looks after.
        runs = 0 if self._device.type == "cuda" else len(wave)
        memory = PROCESS_BYTES[self._device.type] + common + runs * each
        return Needs(self._threads, int(self._device.type == "cuda"), memory)

    def most(self, group: Sequence[RunConfig], memory: int) -> int:
        """How many of these runs, which are alike, fit into a machine's main memory side by side, one at least."""
        common, each = self._bytes(group)
        most = LARGEST_WAVE[self._device.type]
        if self._device.type == "cuda":
            return most
        return max(1, min(most, (memory - PROCESS_BYTES["cpu"] - common) // each))

    def _bytes(self, group: Sequence[RunConfig]) -> tuple[int, int]:
        kind = dataclasses.replace(group[0], seed=0).canonical()
        if kind not in self._known:
            self._known[kind] = self._estimated(group[:2])
        return self._known[kind]

    def _estimated(self, pair: Sequence[RunConfig]) -> tuple[int, int]:
        try:
            footprint = Footprint([build(config, self._data_dir) for config in pair], torch.device("cpu"))
        except Exception:  # a run that cannot be made here fails at a worker, which is where it is told
            return 0, ALONE_BYTES
        return footprint.common, footprint.each


def form_waves(
    group: Sequence[RunConfig], estimator: Estimator, cluster: Cluster, *, runs: int
) -> list[list[RunConfig]]:
    """Cut runs that are alike into waves.

    Args:
        group: the runs.
        estimator: what they need.
        cluster: what there is.
        runs: how many there are to do in all, with those that are not like these.
    """
    if not group:
        return []
    fit = estimator.most(group, cluster.largest().memory)
    room = max(1, cluster.room(estimator.needs(group[:1])))
    return cut(group, max(1, min(fit, -(-runs // room))))
