"""The cost of a whole training step (forward, backward, update) of every method, as a ratio to plain `torch.optim.SGD`.

    python bench/step.py [--rounds 15] [--only mlp|cnn]

Batch 10; the paper's MLP with 400 stored directions, its CNN with 800. Every round times each method in turn, so that a busy
machine slows all alike; figures are medians of the ratios within a round. "dense" is FOPNG written straightforwardly: `F_old G`
as one matrix, its Gram matrix inverted beforehand, two matrix-vector products a step.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fopng
from contenders import CONTENDERS
from fopng.core.vector import Vector
from fopng.curvature.metric import Diagonal
from fopng.lab.benchmarks.models import MLP, ConvNet
from record import record_ratios

RESULTS = Path(__file__).parent / "results" / "step.json"
TARGETS = {
    "mlp": {"fopng": 4.0, "ewc": 1.5, "fng": 1.5, "fopng-k": 4.0},
    "cnn": {"fopng": 2.0, "ewc": 1.5, "fng": 1.5, "fopng-k": 3.0},
}


class DenseFOPNG:
    """FOPNG with `B = F_old G` written out: what a straightforward implementation does each step."""

    def __init__(self, model: nn.Module, optimizer: fopng.FOPNG) -> None:
        named = {name: p for name, p in model.named_parameters() if p.grad is not None}
        prepared = optimizer.pipeline.prepared(Vector({name: p.grad for name, p in named.items()}))
        projector, metric = prepared.projector, prepared.metric
        assert isinstance(metric, Diagonal)
        self.parameters, shapes = list(named.values()), {name: p.shape for name, p in named.items()}
        each = torch.eye(projector.basis.count)
        self.B = torch.stack([projector.basis.matvec(c).only(named).filled(shapes).flat() for c in each])
        self.inverse = projector.inverse.float()
        self.inverse_fisher = metric.inverse.only(named).flat()
        self.lr = optimizer.param_groups[0]["lr"]

    @torch.no_grad()
    def step(self) -> None:
        """`v = eta F_new^-1 P g / |P g|`."""
        g = torch.cat([p.grad.reshape(-1) for p in self.parameters])
        projected = g - self.B.T @ (self.inverse @ (self.B @ g))
        direction = self.inverse_fisher * projected
        v = self.lr * direction / (projected @ direction).sqrt()
        start = 0
        for p in self.parameters:
            p -= v[start : start + p.numel()].view_as(p)
            start += p.numel()


def measure(
    name: str, model: nn.Module, shape: tuple[int, ...], classes: int, directions: int, rounds: int, burst: int
) -> dict[str, float]:
    """Median over rounds of each method's time a step, over that of `torch.optim.SGD` in the same round."""
    x, y = torch.randn(10, *shape), torch.randint(classes, (10,))
    data = [(torch.randn(directions, *shape), torch.randint(classes, (directions,)))]

    def predict(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return model(batch[0], task=0), batch[1]

    def loss() -> None:
        F.cross_entropy(model(x, task=0), y).backward()

    steppers: dict[str, Callable[[], object]] = {"torch.optim.SGD": torch.optim.SGD(model.parameters(), lr=1e-4).step}
    for label, make in CONTENDERS.items():
        optimizer = make(model, predict, directions)
        optimizer.begin_task(0)
        optimizer.end_task(data)
        optimizer.begin_task(1)
        optimizer.refresh(data)
        steppers[label] = optimizer.step
        if label == "fopng":
            loss()
            optimizer.step()
            steppers["dense"] = DenseFOPNG(model, optimizer).step
        print(f"  {name}: {label} is ready", flush=True)

    def burst_of(step: Callable[[], object], steps: int) -> float:
        start = time.perf_counter()
        for _ in range(steps):
            model.zero_grad()
            loss()
            step()
        return (time.perf_counter() - start) / steps

    times: dict[str, list[float]] = {label: [] for label in steppers}
    for r in range(rounds + 1):
        for label, step in steppers.items():
            seconds = burst_of(step, max(2, burst // 5) if label == "dense" else burst)
            if r > 0:
                times[label].append(seconds)
    base = times["torch.optim.SGD"]
    ratios = {
        label: statistics.median(t / b for t, b in zip(seconds, base, strict=True)) for label, seconds in times.items()
    }
    return {**ratios, "microseconds of torch.optim.SGD": 1e6 * statistics.median(base)}


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", choices=["mlp", "cnn"])
    arguments = parser.parse_args()
    torch.manual_seed(0)
    cases = {
        "mlp": lambda: measure("mlp", MLP((784,), [10], seed=0), (784,), 10, 400, arguments.rounds, 100),
        "cnn": lambda: measure("cnn", ConvNet((3, 32, 32), [2] * 5, seed=0), (3, 32, 32), 2, 800, arguments.rounds, 10),
    }
    found = {name: case() for name, case in cases.items() if arguments.only in (None, name)}
    for name, ratios in found.items():
        print(
            f"\n{name}: a step, as a multiple of torch.optim.SGD's ({ratios['microseconds of torch.optim.SGD']:.0f} us)"
        )
        for label, ratio in ratios.items():
            if label.startswith("microseconds"):
                continue
            target = TARGETS[name].get(label)
            print(f"  {label:20} {ratio:8.2f}" + (f"   target {target:.1f}" if target else ""))
        print(f"  dense / fopng        {ratios['dense'] / ratios['fopng']:8.2f}   target 8.0")
    record_ratios(RESULTS, "python bench/step.py", found)


if __name__ == "__main__":
    main()
