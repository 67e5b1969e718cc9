"""A Ray cluster as somebody who does errands. Ray finds the room, watches the workers, and moves code, data and results."""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any, final

from fopng.lab.cluster.errands import Ending, Errand, Failure, Letter, Lost, Needs, Report
from fopng.lab.cluster.mailbox import Mailbox
from fopng.lab.cluster.shipping import Goods, settle
from fopng.lab.cluster.worker import Answer, do_errand

ROOM_SECONDS = 5.0
"""The time between two looks at which machines there are."""

LETTER_SECONDS = 30.0
"""How long a letter may take before it counts as lost."""


def do_on_worker(errand: Errand, goods: Goods, mailbox: Any) -> Report:
    """What runs as a task of Ray."""
    import ray

    def post(letter: Letter) -> Answer:
        try:
            answer: Answer = ray.get(mailbox.post.remote(letter), timeout=LETTER_SECONDS)
            return answer
        except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
            return "lost"

    settle(goods, ray.get)
    return do_errand(errand, post)


@final
class RayCluster:
    """Does errands as tasks of Ray.

    Args:
        ray: the module, connected.
        goods: the data that workers need.
    """

    def __init__(self, ray: ModuleType, goods: Goods) -> None:
        self._ray = ray
        here = ray.get_runtime_context().get_node_id()
        beside_us = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(here, soft=True)
        # Restarted when it is lost; it is not asked twice, as letters are sent again by those who wrote them.
        self._mailbox = ray.remote(Mailbox).options(num_cpus=0, max_restarts=-1, scheduling_strategy=beside_us).remote()
        self._task = ray.remote(do_on_worker)
        self._goods = ray.put(goods)
        self._out: dict[Any, str] = {}
        self._begun: set[str] = set()
        self._nodes: list[dict[str, float]] = []
        self._looked = -ROOM_SECONDS

    def submit(self, errand: Errand, needs: Needs) -> None:
        """Have it done as soon as there is room. Ray tries nothing again: the dispatcher does, from what was saved."""
        options = {"num_cpus": needs.cpus, "num_gpus": needs.gpus, "memory": self._stated(needs), "max_retries": 0}
        task = self._task.options(**options, name=f"fopng wave {errand.name}")
        self._out[task.remote(errand, self._goods, self._mailbox)] = errand.name

    def _stated(self, needs: Needs) -> int:
        """A wave that is too large for every machine is tried on the largest, and halved there if need be."""
        most = self.largest().memory
        return min(needs.memory, most) if most else needs.memory

    def ended(self, seconds: float) -> dict[str, Ending]:
        """The errands that have ended since, by name, after waiting for one for so long at the most."""
        if not self._out:
            time.sleep(seconds)
            return {}
        self._ray.wait(list(self._out), num_returns=1, timeout=seconds)
        ready, _ = self._ray.wait(list(self._out), num_returns=len(self._out), timeout=0)
        return {self._out.pop(task): self._ending(task) for task in ready}

    def _ending(self, task: Any) -> Ending:
        exceptions = self._ray.exceptions
        try:
            report: Report = self._ray.get(task)
            return report
        except exceptions.RayTaskError as error:
            return Report(Letter(""), failure=_failure(error, ends_everything=False))
        except exceptions.RuntimeEnvSetupError as error:
            return Report(Letter(""), failure=_failure(error, ends_everything=True))
        except exceptions.RayError as error:
            return Lost(f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}")

    def letters(self) -> Sequence[Letter]:
        """What the workers said since; nothing while the mailbox is being put up again."""
        try:
            letters: list[Letter] = self._ray.get(self._mailbox.collect.remote(), timeout=LETTER_SECONDS)
        except (self._ray.exceptions.RayActorError, self._ray.exceptions.GetTimeoutError):
            return []
        self._begun |= {letter.errand for letter in letters}
        return letters

    def stop(self) -> None:
        """Begin no more errands, and have those under way saved and ended."""
        self._mailbox.stop.remote()
        for task, name in self._out.items():
            if name not in self._begun:
                self._ray.cancel(task)

    def room(self, needs: Needs) -> int:
        """How many such waves there is room for at a time, busy or not."""
        stated = replace(needs, memory=self._stated(needs))
        return sum(_fits(stated, node) for node in self._machines())

    def largest(self) -> Needs:
        """What the largest machine has of everything."""
        nodes = self._machines()
        cpus, gpus, memory = (max((int(node.get(n, 0)) for node in nodes), default=0) for n in ("CPU", "GPU", "memory"))
        return Needs(cpus, gpus, memory)

    def _machines(self) -> list[dict[str, float]]:
        if time.monotonic() - self._looked >= ROOM_SECONDS:
            self._nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
            self._looked = time.monotonic()
        return self._nodes


def _fits(needs: Needs, node: dict[str, float]) -> int:
    wanted = (("CPU", needs.cpus), ("GPU", needs.gpus), ("memory", needs.memory))
    return int(min(node.get(name, 0) // amount for name, amount in wanted if amount))


def _failure(error: Exception, *, ends_everything: bool) -> Failure:
    cause = getattr(error, "cause", None) or error
    return Failure(f"{type(cause).__name__}: {cause}", traceback.format_exc(), ends_everything)
