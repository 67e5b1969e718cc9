"""One run over W processes: what each holds and what each computes, against W. `python bench/scale.py ranks`.

The processes share this machine's cores, so wall-clock time cannot shrink here: what is measured is the time that a process's own
thread computes (waiting for others does not count), beside the bytes of its stored gradients.
"""

import itertools
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import fopng
from fopng.core.tree import bytes_of
from fopng.core.vector import Vector

RESULTS = Path(__file__).parent / "results" / "ranks.json"
SIZES = {"linear": [784, 1000, 1000, 10], "convolutions": [16, 48, 96]}
DIRECTIONS = 512
REPEATS = 9


def linear_model() -> nn.Module:
    """Linear layers alone: gradients are factors."""
    i, *hidden, o = SIZES["linear"]
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(i, width), nn.ReLU()]
        i = width
    return nn.Sequential(*layers, nn.Linear(i, o))


def convolution_model() -> nn.Module:
    """Convolutions: gradients are written out."""
    channels = SIZES["convolutions"]
    layers: list[nn.Module] = [nn.Unflatten(1, (16, 7, 7))]
    for i, o in itertools.pairwise(channels):
        layers += [nn.Conv2d(i, o, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels[-1], 10))


MODELS: dict[str, Callable[[], nn.Module]] = {"linear": linear_model, "convolutions": convolution_model}


def computing(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Median seconds that this thread computes."""
    found = []
    for _ in range(repeats):
        dist.barrier()
        start = time.thread_time()
        work()
        found.append(time.thread_time() - start)
    return median(found)


def measure(name: str) -> dict[str, float]:
    """The figures of one process."""
    torch.manual_seed(0)
    model = DistributedDataParallel(MODELS[name]())
    optimizer = fopng.FOPNG(model, lr=1e-3, gradients_per_task=DIRECTIONS // 2, first_task="own", fisher_samples=64)
    number, count = dist.get_rank(), dist.get_world_size()
    batches = [(torch.randn(64, 784)[number::count], torch.randint(10, (64,))[number::count]) for _ in range(8)]
    for task in range(2):
        optimizer.begin_task(task)
        optimizer.refresh(batches)
        optimizer.end_task(batches)
    optimizer.begin_task(2)
    refresh = computing(lambda: optimizer.refresh(batches), 3)
    optimizer.zero_grad()
    F.cross_entropy(model(batches[0][0]), batches[0][1]).backward()
    start = time.thread_time()
    optimizer.step()
    gram = time.thread_time() - start
    memory = optimizer.pipeline.state.memory
    assert memory is not None
    g = Vector({name: torch.randn(shape) for name, shape in optimizer.layout.shapes.items()})
    c = torch.randn(memory.count)
    return {
        "parameters": optimizer.layout.size,
        "memory bytes": bytes_of(memory),
        "G^T x and G c, s": computing(lambda: (memory.rmatvec(g), memory.matvec(c))),
        "step, s": computing(optimizer.step),
        "refresh, s": refresh,
        "first step (Gram matrix), s": gram,
    }


def _process(number: int, count: int, folder: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting{count}", rank=number, world_size=count)
    found = {name: measure(name) for name in MODELS}
    (folder / f"{count}-{number}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def _fork(count: int, folder: Path) -> list[dict[str, Any]]:
    children = []
    for number in range(count):
        child = os.fork()
        if child == 0:
            try:
                _process(number, count, folder)
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    return [json.loads((folder / f"{count}-{number}.json").read_text()) for number in range(count)]


def ranks(counts: list[int]) -> None:
    """Measure, print a table and write the JSON file.

    Args:
        counts: how many processes, one after the other; the first is what the others are compared with.
    """
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        found = {count: _fork(count, Path(folder)) for count in counts}
    table = {name: {count: _largest([own[name] for own in each]) for count, each in found.items()} for name in MODELS}
    for name, by_count in table.items():
        first = by_count[counts[0]]
        print(f"{name}: {first['parameters']:,.0f} parameters, {DIRECTIONS} directions; the process that has the most")
        for key in list(first)[1:]:
            told = [f"W={count}: {own[key]:.4g} (1/{first[key] / own[key]:.2f})" for count, own in by_count.items()]
            print(f"  {key:30} " + "   ".join(told))
    RESULTS.write_text(
        json.dumps({"directions": DIRECTIONS, "torch": torch.__version__, "models": table}, indent=2) + "\n"
    )


def _largest(each: list[dict[str, float]]) -> dict[str, float]:
    return {key: max(own[key] for own in each) for key in each[0]}
