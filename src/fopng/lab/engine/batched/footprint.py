"""How many runs fit on a device side by side, estimated before the start."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch

from fopng.curvature.sampling import held_at_most
from fopng.lab.data.splits import Split
from fopng.lab.engine.batched.data import are_shared
from fopng.lab.engine.batched.replay import draws_in_a_pass
from fopng.lab.engine.batched.state import StackedRuns
from fopng.lab.engine.plan import Plan
from fopng.memory.gradients import SLAB_BYTES
from fopng.optim.projected_base import Projected
from fopng.optim.replay_base import Replay

VECTORS = 16
"""Vectors of the size of the weights that a run holds at most: gradients, steps, Fishers, moments and so on."""

SHARE = 0.8
"""The share of the free memory to plan with; the allocator cannot use all."""

_CGROUP = Path("/sys/fs/cgroup")


@final
class Footprint:
    """The memory that runs like these take side by side: a common part and a part for each.

    Args:
        plans: two of the runs, or one.
        device: where they are done.
        lanes: such pieces of work that have the device at the same time.
    """

    def __init__(self, plans: Sequence[Plan], device: torch.device, lanes: int = 1) -> None:
        runs = StackedRuns(plans[:1], device)
        plan, numbers = plans[0], runs.model.theta.element_size()
        trained = [[p.stream[task].train for p in plans] for task in range(len(plan.stream))]
        measured = [[p.stream[task].test for p in plans] for task in range(len(plan.stream))]
        train, tests = _sample_bytes(trained, numbers), _sample_bytes(measured, numbers)
        self.common = 2 * held_at_most(device, lanes) + 2 * SLAB_BYTES + max(train.shared) + sum(tests.shared)
        self.each = (
            VECTORS * numbers * runs.model.layout.size
            + 3 * plan.batch_size * runs.sample_bytes
            + _stored_bytes(runs)
            + _rehearsal_bytes(runs)
            + numbers * runs.pipeline.method.planned_numbers(runs.model.layout.shapes)
            + max(train.own)
            + sum(tests.own)
            + numbers * _kept_answers(plan)
        )

    def count(self, free: int) -> int:
        """How many runs fit into so many bytes, at least one."""
        return max(1, int((SHARE * free - self.common) // self.each))


def free_memory(device: torch.device) -> int | None:
    """The free bytes of a device; None where that is unknown."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if device.type != "cpu":
        return None
    found = [value for value in (_available(), _allowed()) if value is not None]
    return min(found, default=None)


def _available() -> int | None:
    try:
        text = Path("/proc/meminfo").read_text()
        return 1024 * int(text.split("MemAvailable:")[1].split()[0])
    except (OSError, IndexError, ValueError):
        return None


def _allowed() -> int | None:
    """What this process's container may still take."""
    try:
        limit, used = (int((_CGROUP / name).read_text()) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):
        return None
    return max(0, limit - used)


@final
@dataclass(frozen=True)
class _Samples:
    """Bytes of samples, task by task: shared by all runs, and of each run's own."""

    shared: list[int]
    own: list[int]


def _sample_bytes(splits: Sequence[Sequence[Split]], numbers: int) -> _Samples:
    sizes = [_split_bytes(group[0], numbers) for group in splits]
    shared = [size if are_shared(group) else 0 for size, group in zip(sizes, splits, strict=True)]
    return _Samples(shared, [size - common for size, common in zip(sizes, shared, strict=True)])


def _split_bytes(split: Split, numbers: int) -> int:
    # once as it is read, once stacked
    return 2 * numbers * len(split) * torch.Size(split.input_shape).numel()


def _kept_answers(plan: Plan) -> int:
    """Numbers in the answers that tell what was lost of each task."""
    stream = plan.stream
    widths = stream.heads if len(stream.heads) > 1 else stream.heads * len(stream)
    return sum(width * (len(t.test) + len(t.validation or ())) for width, t in zip(widths, stream, strict=True))


def _rehearsal_bytes(runs: StackedRuns) -> int:
    """Bytes of the samples that a run keeps (while new ones are joined to them) and of a pass over some of them."""
    method, stream = runs.pipeline.method, runs.plans[0].stream
    if not isinstance(method, Replay):
        return 0
    extent, theta = method.extent(len(stream), len(stream[0].train)), runs.model.theta
    sample = theta.element_size() * torch.Size(stream[0].train.input_shape).numel()
    draws = draws_in_a_pass(extent.asked, extent.draws, theta)
    # the weights of each draw, and its gradients before they are joined
    vectors = extent.gradients + (2 * draws if draws > 1 else 0)
    asked = 3 * extent.asked * draws * runs.sample_bytes
    return 3 * extent.kept * sample + asked + vectors * theta.element_size() * runs.model.layout.size


def _stored_bytes(runs: StackedRuns) -> int:
    """Bytes of the gradients that a run stores (while new ones are joined to them) and of their Gram matrices."""
    method = runs.pipeline.method
    if not isinstance(method, Projected):
        return 0
    directions = method.gradients_per_task * len(runs.plans[0].stream)
    if method.max_directions is not None:
        directions = min(directions, method.max_directions + method.gradients_per_task)
    return directions * (3 * runs.gradient_bytes + 4 * 8 * directions) + method.gradients_per_task * runs.sample_bytes
