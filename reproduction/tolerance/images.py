"""A run on an image stream, by the laboratory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fopng.core.tree import bytes_of
from fopng.lab.benchmarks.models import model_for
from fopng.lab.engine import Plan, one_by_one, train
from fopng.optim.optimizer import ContinualOptimizer
from fopng.optim.registry import METHODS
from reproduction.tolerance.records import Measured
from reproduction.tolerance.streams import ImageStream


def run_images(
    stream: ImageStream,
    method: str,
    settings: Mapping[str, Any],
    seed: int,
    data_dir: Path | None,
    device: torch.device,
) -> Measured:
    """Learn the tasks one after another; the first with plain SGD, whatever the method."""
    tasks = stream.tasks(stream.data(data_dir), seed)
    made: list[ContinualOptimizer] = []

    def make_optimizer(model: nn.Module, **how: Any) -> ContinualOptimizer:
        made.append(METHODS[method].optimizer(model, **settings, **how))
        return made[0]

    plan = Plan(
        label=f"{stream.title} {method} seed {seed}",
        stream=tasks,
        stages=one_by_one(tasks),
        make_model=lambda weights: model_for(tasks, seed=weights),
        make_optimizer=make_optimizer,
        first_task_lr=stream.lr,
        epochs=stream.epochs,
        batch_size=stream.batch_size,
        seed=seed,
    )
    outcome = train(plan, device=device)
    return Measured(
        score=outcome.accuracy,
        before=outcome.accuracy_before,
        lost=outcome.lost,
        kept_bytes=kept_bytes(made[0]),
        method=outcome.measured,
        diverged=outcome.status == "diverged",
    )


def kept_bytes(optimizer: ContinualOptimizer) -> int:
    """What a method keeps of old tasks, without momentum and the like."""
    return bytes_of(optimizer.pipeline.state)
