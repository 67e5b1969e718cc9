"""A long stream at constant memory: a full gradient memory thinned or compressed, over 50 permuted tasks.

    FOPNG_DATA=... python bench/memory.py [--tasks 50] [--samples 1500] [--seeds 2] [--only ogd]

MNIST, the paper's MLP, batch 10, one epoch of a few samples a task, 20 gradients a task, 100 directions. For each method and each
way of making room: the mean accuracy over all tasks in the end, the bytes that the method holds and the time of a step as the
stream goes on (processor time, medians within a task), and the share of the directions that compression has lost. "unlimited" keeps
everything.
"""

import argparse
import json
import statistics
import time
import warnings
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

import fopng
from fopng.lab.benchmarks.models import MLP
from fopng.lab.benchmarks.pixels import Permuted
from fopng.lab.runs.environment import describe_environment
from fopng.optim.registry import METHODS

RESULTS = Path(__file__).parent / "results" / "memory.json"
DIRECTIONS = 100
GRADIENTS = 20
BATCH = 10
CPU = torch.device("cpu")
SETTINGS = {
    "ogd": {"lr": 1e-2},
    "natural-ogd": {"lr": 1e-3, "fisher_samples": 200},
}
WAYS = {
    "compress": {"max_directions": DIRECTIONS, "when_full": "compress"},
    "thin": {"max_directions": DIRECTIONS, "when_full": "thin"},
    "unlimited": {},
}


def walk(method: str, way: str, tasks: int, samples: int, seed: int) -> dict[str, object]:
    """One stream from beginning to end."""
    torch.manual_seed(seed)
    stream = Permuted("mnist", tasks=tasks).build(seed=seed, validation=False)
    model = MLP((784,), [10], seed=seed)
    settings = {"gradients_per_task": GRADIENTS, "first_task": "own", **SETTINGS[method], **WAYS[way]}
    optimizer = METHODS[method].optimizer(model, **settings)
    held, micros, ends = [], [], []
    for task in range(tasks):
        order = torch.randperm(len(stream[task].train))[:samples]
        x, y = stream[task].train.read(order, CPU)
        micros.append(learn(optimizer, model, x.flatten(1), y, task))
        start = time.process_time()
        optimizer.end_task([(x.flatten(1), y)])
        ends.append(time.process_time() - start)
        held.append(optimizer.diagnose().bytes)
    marks = sorted({0, 4, 9, 19, 29, 39, tasks - 1} & set(range(tasks)))
    scores = [accuracy(model, stream[task].test.read(torch.arange(10_000), CPU)) for task in range(tasks)]
    return {
        "final average accuracy": statistics.mean(scores),
        "accuracy of the last task": scores[-1],
        "compression error": float(optimizer.diagnose().compression_error),
        "after task": [mark + 1 for mark in marks],
        "bytes": [held[mark] for mark in marks],
        "microseconds a step": [round(micros[mark]) for mark in marks],
        "seconds to end a task": [round(ends[mark], 3) for mark in marks],
    }


def learn(optimizer: fopng.ContinualOptimizer, model: MLP, x: Tensor, y: Tensor, task: int) -> float:
    """One epoch; the median time of a step, of the processor, in microseconds."""
    optimizer.begin_task(task)
    optimizer.refresh([(x, y)])
    times = []
    for rows in torch.randperm(len(x)).split(BATCH):
        start = time.process_time()
        optimizer.zero_grad()
        F.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
        times.append(time.process_time() - start)
    return 1e6 * statistics.median(times)


@torch.no_grad()
def accuracy(model: MLP, test: tuple[Tensor, Tensor]) -> float:
    """The share of right answers."""
    x, y = test
    return float((model(x.flatten(1)).argmax(-1) == y).float().mean())


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=50)
    parser.add_argument("--samples", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", choices=list(SETTINGS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # processor time: a second thread's waiting would count
    warnings.simplefilter("ignore", fopng.MemoryFull)
    for method in [arguments.only] if arguments.only else list(SETTINGS):
        for way in WAYS:
            # what is unlimited grows slow: one seed of one method shows it
            seeds = range(arguments.seeds) if way != "unlimited" else range(method == "ogd")
            runs = [walk(method, way, arguments.tasks, arguments.samples, seed) for seed in seeds]
            if runs:
                show(f"{method}, {way}", runs)
                record(f"{method}, {way}", runs, arguments)


def record(label: str, runs: list[dict[str, object]], arguments: argparse.Namespace) -> None:
    """Write what was found beside what is there."""
    RESULTS.parent.mkdir(exist_ok=True)
    there = json.loads(RESULTS.read_text())["runs"] if RESULTS.exists() else {}
    command = (
        f"python bench/memory.py --tasks {arguments.tasks} --samples {arguments.samples} --seeds {arguments.seeds}"
    )
    document = {"command": command, "environment": describe_environment(CPU), "runs": there | {label: runs}}
    RESULTS.write_text(json.dumps(document, indent=2) + "\n")


def show(label: str, runs: list[dict[str, object]]) -> None:
    """A few lines on one way of one method."""
    scores = [100 * run["final average accuracy"] for run in runs]
    spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
    first = runs[0]
    print(f"{label:24} accuracy {statistics.mean(scores):.2f} +- {spread:.2f}   lost {first['compression error']:.2f}")
    for name in ("after task", "bytes", "microseconds a step", "seconds to end a task"):
        print(f"  {name:24}" + " ".join(f"{value:>9}" for value in first[name]), flush=True)


if __name__ == "__main__":
    main()
