"""The cost of each way to approximate a Fisher, as the metric of FNG: a step and a refresh, as ratios to those of the diagonal.

    python bench/fishers.py [--rounds 3] [--only mlp|cnn]

Batch 10, refreshed on 1,024 samples. Every round times each metric in turn, so that a busy machine slows all alike; figures are
medians of the ratios within a round. "full" needs a matrix of all parameters by all parameters, which neither network has room for.
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
from fopng.lab.benchmarks.models import MLP, ConvNet
from record import record_ratios

RESULTS = Path(__file__).parent / "results" / "fishers.json"
METRICS = ("diagonal", "kfac", "ekfac", "low-rank")


def predict(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Through the first head."""
    return model(batch[0], task=0), batch[1]


def seconds(work: Callable[[], object], times: int = 1) -> float:
    """Of one of several turns."""
    start = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - start) / times


def measure(
    model: nn.Module, shape: tuple[int, ...], classes: int, rounds: int, steps: int
) -> dict[str, dict[str, float]]:
    """For each metric, a step and a refresh over the diagonal's, and the bytes that it holds."""
    x, y = torch.randn(10, *shape), torch.randint(classes, (10,))
    data = [(torch.randn(1024, *shape), torch.randint(classes, (1024,)))]
    optimizers = {name: fopng.FNG(model, 1e-6, metric=name, first_task="own", predict=predict) for name in METRICS}

    def step(optimizer: fopng.FNG) -> None:
        model.zero_grad()
        F.cross_entropy(model(x, task=0), y).backward()
        optimizer.step()

    times: dict[str, list[tuple[float, float]]] = {name: [] for name in METRICS}
    for r in range(rounds + 1):
        for name, optimizer in optimizers.items():
            refresh = seconds(lambda own=optimizer: own.refresh(data))
            # the first step after a refresh inverts the metric, which is a part of its cost
            refresh += seconds(lambda own=optimizer: step(own))
            if r > 0:
                times[name].append((seconds(lambda own=optimizer: step(own), steps), refresh))
    found = {}
    for name, optimizer in optimizers.items():
        pairs = list(zip(times[name], times["diagonal"], strict=True))
        found[name] = {
            "step": statistics.median(own[0] / base[0] for own, base in pairs),
            "refresh": statistics.median(own[1] / base[1] for own, base in pairs),
            "refresh, seconds": statistics.median(own[1] for own, _ in pairs),
            "bytes": optimizer.pipeline.nbytes,
        }
    return found


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["mlp", "cnn"])
    arguments = parser.parse_args()
    torch.manual_seed(0)
    cases = {
        "mlp": lambda: measure(MLP((784,), [10], seed=0), (784,), 10, arguments.rounds, 100),
        "cnn": lambda: measure(ConvNet((3, 32, 32), [2] * 5, seed=0), (3, 32, 32), 2, arguments.rounds, 5),
    }
    found = {name: case() for name, case in cases.items() if arguments.only in (None, name)}
    for name, metrics in found.items():
        print(f"\n{name}: multiples of the diagonal's")
        for metric, own in metrics.items():
            print(
                f"  {metric:10} step {own['step']:6.2f}   refresh {own['refresh']:6.2f}   {own['bytes'] / 2**20:8.1f} MiB"
            )
    record_ratios(RESULTS, "python bench/fishers.py", found)


if __name__ == "__main__":
    main()
