"""Measure the core against a dense implementation, BackPACK, `torch.func` and a loop: `make bench`.

Every number is the median of interleaved repetitions in one process, so that a ratio compares neighbours in time. The table goes to
the terminal, the same as JSON to bench/results/core.json.
"""

import json
import os
import platform
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from torch import Tensor, nn

from fopng.core.tree import bytes_of
from fopng.core.vector import Vector
from fopng.curvature.estimate import diagonal_fisher, sample_gradients
from fopng.curvature.metric import Diagonal
from fopng.curvature.sampling import LoaderStream
from fopng.gradients.directions import ScaledBasis
from fopng.gradients.per_sample import PerSampleGradients
from fopng.memory.gradients import GradientMemory
from fopng.memory.projection import Projector

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from backpack import backpack, extend
    from backpack.extensions import SumGradSquared

Batches = list[tuple[Tensor, Tensor]]
RESULTS = Path(__file__).parent / "results" / "core.json"


def measure(ways: dict[str, Callable[[], object]], *, repeats: int) -> dict[str, float]:
    """Median seconds of each way, measured in turns after one warm-up (none for what is measured once)."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    first = 0 if repeats > 1 else 1
    for turn in range(first, repeats + 1):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return {name: median(found) for name, found in seconds.items()}


def mlp() -> nn.Sequential:
    """The paper's network for MNIST: 784-100-100-10."""
    return nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 10))


def trunk() -> list[nn.Module]:
    """The paper's network for CIFAR, up to its heads."""
    layers: list[nn.Module] = []
    for i, o in ((3, 32), (32, 64)):
        layers += [nn.Conv2d(i, o, 3, padding=1), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [
        nn.Flatten(),
        nn.Linear(4096, 256),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(256, 256),
        nn.ReLU(),
        nn.Dropout(0.5),
    ]
    return layers


def data(n: int, shape: tuple[int, ...], classes: int, size: int) -> Batches:
    """Random samples in batches, as a user would pass them."""
    x, y = torch.rand(n, *shape), torch.randint(0, classes, (n,))
    return list(zip(x.split(size), y.split(size), strict=True))


def by_backpack(model: nn.Module, batches: Batches) -> list[Tensor]:
    """The sum of squared gradients by BackPACK."""
    loss = extend(nn.CrossEntropyLoss(reduction="sum"))
    total = [torch.zeros_like(p) for p in model.parameters()]
    for x, y in batches:
        model.zero_grad()
        with backpack(SumGradSquared()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loss(model(x), y).backward()
        for own, p in zip(total, model.parameters(), strict=True):
            own += p.sum_grad_squared
    return total


def by_torch_func(model: nn.Module, batches: Batches) -> dict[str, Tensor]:
    """The same with `vmap(grad)`."""
    values = {name: p.detach() for name, p in model.named_parameters()}

    def loss(values: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(torch.func.functional_call(model, values, (x[None],)), y[None])

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    total = {name: torch.zeros_like(p) for name, p in values.items()}
    for x, y in batches:
        for name, g in each(values, x, y).items():
            total[name] += g.square().sum(0)
    return total


def by_loop(model: nn.Module, batches: Batches) -> list[Tensor]:
    """The same, one sample after another, as the paper's code does."""
    total = [torch.zeros_like(p) for p in model.parameters()]
    for x, y in batches:
        for k in range(len(x)):
            loss = nn.functional.cross_entropy(model(x[k : k + 1]), y[k : k + 1])
            for own, g in zip(total, torch.autograd.grad(loss, list(model.parameters())), strict=True):
                own += g.square()
    return total


def fisher_of_the_mlp(size: int) -> dict[str, float]:
    """Samples of diagonal Fisher a second, in batches of `size`."""
    model, other = mlp(), extend(mlp())
    source = PerSampleGradients(model)
    counts = {"fopng": 5120, "BackPACK": 1280 if size < 64 else 5120, "torch.func": 512, "loop": 320}
    batches = {name: data(n, (784,), 10, size) for name, n in counts.items()}
    seconds = measure(
        {
            "fopng": lambda: diagonal_fisher(source, LoaderStream(batches["fopng"])),
            "BackPACK": lambda: by_backpack(other, batches["BackPACK"]),
            "torch.func": lambda: by_torch_func(model, batches["torch.func"]),
            "loop": lambda: by_loop(model, batches["loop"]),
        },
        repeats=9,
    )
    return {name: counts[name] / s for name, s in seconds.items()}


def fisher_of_the_cnn(size: int) -> dict[str, float]:
    """Samples of diagonal Fisher a second, in batches of `size`, one head of two."""
    model, other = (nn.Sequential(*trunk(), nn.Linear(256, 2)).eval() for _ in range(2))
    other = extend(other)
    source, n = PerSampleGradients(model), 256 if size >= 64 else 100
    batches = data(n, (3, 32, 32), 2, size)
    ways = {
        "fopng": lambda: diagonal_fisher(source, LoaderStream(batches)),
        "BackPACK": lambda: by_backpack(other, batches),
    }
    return {name: n / s for name, s in measure(ways, repeats=5).items()}


def memory_of(model: nn.Module, shape: tuple[int, ...], heads: int | None, m: int) -> GradientMemory:
    """Stored gradients of `m` samples, those of a multi-head model through each head in turn."""
    tasks = heads or 1
    memory = GradientMemory()
    for task in range(tasks):
        source = PerSampleGradients(
            model, predict=lambda f, b, t=task: (f["heads"][t](f["trunk"](b[0])) if heads else f(b[0]), b[1])
        )
        stream = LoaderStream(data(m // tasks, shape, 2, 10))
        memory = memory.appended(*sample_gradients(source, stream, m // tasks))
    return memory


def projection(memory: GradientMemory, dense_rows: int, repeats: int) -> dict[str, float]:
    """Milliseconds of one projection and of one Gram matrix; the dense ones with `dense_rows` directions, scaled to all of them."""
    m, p = memory.count, sum(shape.numel() for shape in memory.shapes.values())
    f_old, f_new, g = (
        Vector({name: draw(shape) for name, shape in memory.shapes.items()})
        for draw in (torch.rand, torch.rand, torch.randn)
    )
    metric = Diagonal(f_new, damping=1e-3)
    basis = ScaledBasis(memory, f_old)
    projector = Projector.build(basis, metric, gram_damping=1e-3, form="printed")
    B = torch.randn(dense_rows, p)
    small = projector.inverse[:dense_rows, :dense_rows]
    flat, inverse = g.flat(), metric.inverse.flat()

    def by_dense() -> Tensor:
        c = small @ (B @ flat).double()
        return flat - c.float() @ B

    def gram_by_dense() -> Tensor:
        return (B * inverse) @ B.T

    steps = measure({"fopng": lambda: projector(g), "dense": by_dense}, repeats=repeats)
    grams = measure(
        {"fopng": lambda: metric.inverse_gram(basis), "dense": gram_by_dense}, repeats=max(1, repeats // 10)
    )
    return {
        "projection, fopng (ms)": 1e3 * steps["fopng"],
        "projection, dense (ms)": 1e3 * steps["dense"] * m / dense_rows,
        "Gram matrix, fopng (ms)": 1e3 * grams["fopng"],
        "Gram matrix, dense (ms)": 1e3 * grams["dense"] * (m / dense_rows) ** 2,
        "memory, fopng (MB)": bytes_of(memory) / 1e6,
        "memory, dense (MB)": 4 * m * p / 1e6,
        "dense measured with directions": float(dense_rows),
    }


def main() -> None:
    """Measure, print, write."""
    torch.manual_seed(0)
    found: dict[str, dict[str, float]] = {}
    targets: list[tuple[str, float, float]] = []
    for size in (10, 256):
        rates = found[f"MLP, diagonal Fisher, batches of {size} (samples/s)"] = fisher_of_the_mlp(size)
        targets.append((f"MLP Fisher against BackPACK, batches of {size}", rates["fopng"] / rates["BackPACK"], 1.5))
        targets.append((f"MLP Fisher against the loop, batches of {size}", rates["fopng"] / rates["loop"], 15))
    own = found["MLP, 400 directions"] = projection(memory_of(mlp(), (784,), None, 400), 400, 60)
    targets.append(("MLP projection against dense", own["projection, dense (ms)"] / own["projection, fopng (ms)"], 8))
    targets.append(("MLP memory against dense", own["memory, dense (MB)"] / own["memory, fopng (MB)"], 50))
    for size in (10, 64):
        rates = found[f"CNN, diagonal Fisher, batches of {size} (samples/s)"] = fisher_of_the_cnn(size)
        targets.append((f"CNN Fisher against BackPACK, batches of {size}", rates["fopng"] / rates["BackPACK"], 1))
    heads = nn.ModuleList([nn.Linear(256, 2) for _ in range(5)])
    cnn = nn.ModuleDict({"trunk": nn.Sequential(*trunk()), "heads": heads})
    own = found["CNN, 800 directions, five heads"] = projection(memory_of(cnn, (3, 32, 32), 5, 800), 200, 10)
    targets.append(("CNN memory against dense", own["memory, dense (MB)"] / own["memory, fopng (MB)"], 12))
    report(found, targets)


def report(found: dict[str, dict[str, float]], targets: list[tuple[str, float, float]]) -> None:
    """Print the tables and write them as JSON."""
    for title, numbers in found.items():
        print(f"\n{title}")
        for name, value in numbers.items():
            print(f"  {name:34}{value:12,.2f}")
    print(f"\n{'ratio':48}{'found':>8}{'target':>8}")
    for name, ratio, target in targets:
        print(f"{name:48}{ratio:8.1f}{target:8.1f}  {'reached' if ratio >= target else 'MISSED'}")
    if os.getloadavg()[0] > 1.5 * torch.get_num_threads():
        print("\nOther work is running on this machine: ratios of threaded products are not to be trusted.")
    environment = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "machine": platform.machine(),
    }
    ratios = [{"name": name, "ratio": round(ratio, 2), "target": target} for name, ratio, target in targets]
    rounded = {title: {name: round(value, 3) for name, value in numbers.items()} for title, numbers in found.items()}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"environment": environment, "measured": rounded, "ratios": ratios}, indent=2) + "\n")


if __name__ == "__main__":
    main()
