"""What the machines of a Ray cluster have, what groups of runs need, and how many runs make a group there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import final

import torch

from fopng.lab.engine.batched import Footprint
from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.request import build
from fopng.lab.schedule.groups import LARGEST_GROUP, cut

PROCESS_BYTES = {"cpu": 2**29, "cuda": 3 * 2**30}
"""Main memory of a process that has torch, and CUDA's libraries, loaded."""

RUN_BYTES = 2**30
"""What a run takes whose memory cannot be estimated."""


@final
class Machines:
    """The machines of a cluster.

    Args:
        ray: the module, connected.
        threads: of the CPU, for each group.
        gpus: whether runs are done on GPUs; None for yes if there are any.
        data_dir: where to look for datasets first.
    """

    def __init__(self, ray: ModuleType, *, threads: int, gpus: bool | None, data_dir: Path | None) -> None:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        cuda = any(node.get("GPU") for node in nodes) if gpus is None else gpus
        self.device = torch.device("cuda" if cuda else "cpu")
        self._threads, self._data_dir, self._known = threads, data_dir, dict[str, tuple[int, int]]()
        self._memory = int(max((node.get("memory", 0) for node in nodes), default=0))
        self._room = sum(int(node.get("GPU", 0) if cuda else node.get("CPU", 0) // threads) for node in nodes)

    def needs(self, configs: Sequence[RunConfig]) -> dict[str, int]:
        """The options of a task of Ray that does these runs."""
        common, each = self._bytes(configs)
        # On a GPU the runs themselves are in its own memory, which the worker looks after.
        runs = 0 if self.device.type == "cuda" else len(configs)
        needed = PROCESS_BYTES[self.device.type] + common + runs * each
        # A group that is too large for every machine is tried on the largest, and halved there if need be.
        memory = min(needed, self._memory) if self._memory else needed
        return {"num_cpus": self._threads, "num_gpus": int(self.device.type == "cuda"), "memory": memory}

    def cut(self, configs: Sequence[RunConfig], runs: int) -> list[list[RunConfig]]:
        """Like runs in groups that fit, and of which every machine gets some.

        Args:
            configs: the runs.
            runs: how many there are to do in all.
        """
        most = LARGEST_GROUP[self.device.type]
        if configs and self.device.type == "cpu" and self._memory:
            common, each = self._bytes(configs)
            most = min(most, (self._memory - PROCESS_BYTES["cpu"] - common) // each)
        return cut(configs, max(1, min(most, -(-runs // max(1, self._room)))))

    def _bytes(self, configs: Sequence[RunConfig]) -> tuple[int, int]:
        """Bytes that a group of such runs takes in any case, and for each run; estimated once for like runs."""
        kind = replace(configs[0], seed=0).canonical()
        if kind not in self._known:
            try:
                plans = [build(config, self._data_dir) for config in configs[:2]]
                footprint = Footprint(plans, torch.device("cpu"))
                self._known[kind] = footprint.common, footprint.each
            except Exception:  # a run that cannot be made here fails at a worker, which is where it is told
                self._known[kind] = 0, RUN_BYTES
        return self._known[kind]
