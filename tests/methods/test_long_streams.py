"""Two hundred tasks: nothing grows but what a method says that it keeps."""

import os
import sys
import threading
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from methods.worlds import METHODS, PROJECTED

TASKS, EARLY = 200, 50

GROW = {
    "GEM": "samples of every task, each a constraint of a step",
    "AGEM": "samples of every task",
    "KroneckerFOPNG": "what stands for the inputs of every task",
}
"""Methods that keep something of every task, and what."""

SETTINGS = {name: {"gradients_per_task": 2, "max_directions": 10, "when_full": "compress"} for name in PROJECTED} | {
    "GEM": {"samples_per_task": 1},
    "AGEM": {"samples_per_task": 2},
    "ER": {"capacity": 20},
    "KroneckerFOPNG": {"probe": 2},
}

SHORTER = {"GEM": 80}
"""Its quadratic program grows with the number of tasks."""


def calls_of(function):
    """How many functions a call goes through: what it costs, whatever else the machine does."""
    seen = Counter()
    sys.setprofile(lambda frame, event, argument: seen.update([event]))
    try:
        function()
    finally:
        sys.setprofile(None)
    return seen["call"] + seen["c_call"]


def look(optimizer, step):
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "bytes": optimizer.pipeline.nbytes,
        "calls": calls_of(step),
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", METHODS)
def test_a_long_stream_does_not_grow(name):
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = METHODS[name](model, 1e-3, **SETTINGS.get(name, {}))
    tasks, seen = SHORTER.get(name, TASKS), []
    for task in range(tasks):
        x, y = torch.randn(4, 6), torch.randint(3, (4,))
        optimizer.begin_task(task)
        optimizer.refresh([(x, y)])
        for _ in range(2):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        if task in (min(EARLY, tasks // 2), tasks - 1):
            seen.append(look(optimizer, optimizer.step))
        optimizer.end_task([(x, y)])
    early, late = seen
    assert (late["descriptors"], late["threads"]) == (early["descriptors"], early["threads"])
    most = tasks / min(EARLY, tasks // 2) if name in GROW else 1.0
    assert late["bytes"] <= 1.02 * most * early["bytes"]
    assert late["calls"] <= 1.1 * most * early["calls"] + 50
