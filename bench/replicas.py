"""Runs side by side: microseconds a step and replica, and the throughput against one run at a time.

    python bench/replicas.py gpu [--steps 300]     every method, MLP (m = 80, 320; R = 1, 5, 35) and CNN (R = 1, 5, 15)
    python bench/replicas.py waves                 several waves at a time, each on a stream of its own, as `--jobs N` has them
    python bench/replicas.py cpu [--rounds 3]      five seeds of FOPNG on Split-MNIST (one epoch; MNIST must be there): side by
                                                   side, one after another, and written straightforwardly

On a GPU weights, samples and stored gradients are made up; what is measured is the engine's own step on them (gather the batch,
forward, backward, update), after the memory is filled and the Fisher estimated. The steps are replayed from a CUDA graph; times are
of the device, between events, and the ceilings (copy bandwidth, float32 matrix product) are measured in the same run.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from contenders import CONTENDERS, STORES
from floors import floor_of
from fopng.gradients.per_sample import PerSampleGradients
from fopng.lab.benchmarks import find_benchmark
from fopng.lab.benchmarks.models import MLP, ConvNet, Network
from fopng.lab.choices import EngineName
from fopng.lab.data.splits import Split
from fopng.lab.engine.batched.backend import STEPS_AT_A_TIME
from fopng.lab.engine.batched.data import StackedSamples, StackedStream
from fopng.lab.engine.batched.model import StackedModel, stack_methods
from fopng.lab.engine.batched.replay import StackedTaskSamples
from fopng.lab.engine.batched.step import Stepper
from fopng.lab.engine.precision import Precision
from fopng.lab.engine.stages import predict_task
from fopng.lab.engine.streams import StreamScheduler, interleave
from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.environment import describe_environment
from fopng.lab.runs.request import configurations
from fopng.lab.runs.store import Store
from fopng.lab.schedule.runner import Runner
from fopng.optim.pipeline import Pipeline
from fopng.optim.task import Task
from handwritten import HandWritten
from straightforward import Straightforward

RESULTS = Path(__file__).parent / "results"
PLACES = {"body.0": 32 * 32, "body.2": 32 * 32, "body.5": 16 * 16, "body.7": 16 * 16}
"""Of the outputs of the ConvNet's convolutions."""


class Take(Protocol):
    """Takes the steps, from a graph or not, in streams with others or not, and gives the seconds that one took."""

    def __call__(self, capture: bool, streams: StreamScheduler | None = None) -> float: ...


class MadeUp(Split):
    """Random samples."""

    def __init__(self, count: int, shape: tuple[int, ...], classes: int) -> None:
        self._x, self._y = torch.randn(count, *shape), torch.randint(classes, (count,))

    def __len__(self) -> int:
        return len(self._y)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self._x.shape[1:])

    @property
    def targets(self) -> Tensor:
        return self._y

    def read(self, rows: Tensor, device: torch.device | str | None = None) -> tuple[Tensor, Tensor]:
        return self._x[rows].to(device), self._y[rows].to(device)


def make_model(kind: str, seed: int) -> tuple[Network, tuple[int, ...], int]:
    """The paper's network, the shape of its inputs and its classes."""
    if kind == "mlp":
        return MLP((784,), [10], seed=seed), (784,), 10
    return ConvNet((3, 32, 32), [2] * 5, seed=seed), (3, 32, 32), 2


def prepare(kind: str, method: str, replicas: int, directions: int, steps: int, device: torch.device) -> Take:
    """A function that takes the steps."""
    models = [make_model(kind, seed)[0].to(device) for seed in range(replicas)]
    _, shape, classes = make_model(kind, 0)
    optimizers = [CONTENDERS[method](model, predict_task, directions) for model in models]
    stacked = StackedModel(models, optimizers[0].layout, range(replicas))
    pipeline = Pipeline(stack_methods([o.method for o in optimizers], device))
    split = MadeUp(10 * steps, shape, classes)
    samples = StackedSamples([split] * replicas, device)
    alive = torch.ones(replicas, dtype=torch.bool, device=device)
    source = PerSampleGradients(models[0], predict=predict_task)
    generators = [torch.Generator().manual_seed(r) for r in range(replicas)]
    stream = StackedStream(samples, 0, stacked.weights, generators, alive)
    task = Task(source, stream, StackedTaskSamples(source, stream), stacked.weights.parts, steps)
    with torch.no_grad():
        pipeline.end_task(task)
        pipeline.refresh(task)
    stepper = Stepper(stacked, pipeline, optimizers[0].param_groups[0]["lr"], alive)
    orders = torch.stack([torch.randperm(len(split)) for _ in range(replicas)]).to(device)
    stacked.template.train()

    def take(capture: bool, streams: StreamScheduler | None = None) -> float:
        marks: list[float | torch.cuda.Event] = []

        def after(step: int) -> None:
            if step in (9, steps - 1):
                marks.append(_now(device))
            if streams is not None and step % STEPS_AT_A_TIME == 0:
                streams.end_slice()

        stepper.walk(samples, orders, 10, 0, 0, after, capture)
        return _between(marks[0], marks[1]) / (steps - 10)

    return take


def _now(device: torch.device) -> "float | torch.cuda.Event":
    if device.type == "cpu":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _between(start: "float | torch.cuda.Event", stop: "float | torch.cuda.Event") -> float:
    if isinstance(start, float) and isinstance(stop, float):
        return stop - start
    assert isinstance(start, torch.cuda.Event)
    assert isinstance(stop, torch.cuda.Event)
    torch.cuda.synchronize()
    return start.elapsed_time(stop) / 1e3


def ceilings(device: torch.device) -> dict[str, float]:
    """What the device gives at best: bytes a second of a large copy, float32 operations a second of a large product."""
    x, y = torch.randn(2**28, device=device), torch.empty(2**28, device=device)
    a, b = torch.randn(8192, 8192, device=device), torch.randn(8192, 8192, device=device)

    def seconds(work: Callable[[], object]) -> float:
        work()
        times = []
        for _ in range(5):
            start = _now(device)
            work()
            times.append(_between(start, _now(device)))
        return statistics.median(times)

    return {
        "copy, bytes a second": 2 * 4 * 2**28 / seconds(lambda: y.copy_(x)),
        "float32 product, operations a second": 2 * 8192**3 / seconds(lambda: a @ b),
    }


def on_gpu(steps: int, only: str | None) -> dict[str, object]:
    """Every method, by size."""
    device = torch.device("cuda")
    table, ceiling = [], ceilings(device)
    for kind, sizes in (
        ("mlp", [(80, 1), (80, 5), (80, 35), (320, 1), (320, 5), (320, 35)]),
        ("cnn", [(320, 1), (320, 5), (320, 15)]),
    ):
        for directions, replicas in sizes:
            for method in CONTENDERS:
                if only is not None and method not in only.split(","):
                    continue
                stores = method in STORES
                if not stores and directions == 320 and kind == "mlp":
                    continue
                take = prepare(kind, method, replicas, directions, steps if kind == "mlp" else steps // 3, device)
                seconds = min(take(True) for _ in range(2))
                row = {
                    "model": kind,
                    "method": method,
                    "m": directions if stores else 0,
                    "R": replicas,
                    "us a step": 1e6 * seconds,
                }
                row["us a step and replica"] = row["us a step"] / replicas
                if method in ("sgd", "fopng"):
                    floor = floor_of(make_model(kind, 0)[0], PLACES, replicas, 10, row["m"])
                    row |= floor.shares(seconds, ceiling)
                table.append(row)
                print(
                    "  ".join(f"{value:.1f}" if isinstance(value, float) else str(value) for value in row.values()),
                    flush=True,
                )
                torch.cuda.empty_cache()
    by_hand = {f"R = {r}": 1e6 * _by_hand(r, steps, device) for r in (1, 5, 35)}
    return {"ceilings": ceiling, "SGD written by hand, us a step of the MLP": by_hand, "steps": table}


def in_waves(steps: int) -> dict[str, object]:
    """The steps of several waves, replayed in streams."""
    device, table = torch.device("cuda"), []
    for kind, method, replicas, directions in (
        ("mlp", "sgd", 1, 0),
        ("mlp", "sgd", 5, 0),
        ("mlp", "fng", 5, 0),
        ("mlp", "fopng", 5, 80),
        ("mlp", "fopng", 5, 320),
        ("mlp", "fopng", 35, 320),
        ("cnn", "fopng", 5, 320),
    ):
        for waves in (1, 4, 7):
            seconds = _interleaved(kind, method, replicas, directions, waves, steps, device)
            row = {"model": kind, "method": method, "m": directions, "R": replicas, "waves": waves}
            table.append(row | {"us a step of one wave": 1e6 * seconds})
            print(*table[-1].values(), flush=True)
            torch.cuda.empty_cache()
    return {"steps": table}


def _interleaved(
    kind: str, method: str, replicas: int, directions: int, waves: int, steps: int, device: torch.device
) -> float:
    """The seconds of a step of one of these waves while all of them take theirs."""
    takes: list[Take] = []

    def begin(number: int, streams: StreamScheduler) -> None:
        take = prepare(kind, method, replicas, directions, steps, device)
        take(True)
        takes.append(take)

    interleave(range(waves), begin, lanes=waves, device=device)

    def go(take: Take, streams: StreamScheduler) -> None:
        take(True, streams)

    def once() -> float:
        start = time.perf_counter()
        interleave(takes, go, lanes=waves, device=device)
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / (steps * waves)

    once()
    return once()


def _by_hand(replicas: int, steps: int, device: torch.device) -> float:
    """The seconds of a step of SGD on so many MLPs, written by hand."""
    count = 10 * (steps + 10)
    x, y = torch.randn(count, 784, device=device), torch.randint(10, (count,), device=device)
    orders = torch.stack([torch.randperm(count) for _ in range(replicas)]).to(device)
    replay = HandWritten(replicas, x, y, orders, 10, 1e-4).captured()
    start = _now(device)
    for _ in range(steps):
        replay()
    return _between(start, _now(device)) / steps


def on_cpu(steps: int, rounds: int) -> dict[str, object]:
    """Five seeds of FOPNG on Split-MNIST: side by side, one after another, and straightforwardly (extrapolated)."""
    configs = configurations(benchmark="split-mnist", methods=["fopng"], seeds=range(5), epochs=1)
    pairs = [{engine: _whole(configs, engine) for engine in ("replicas", "single")} for _ in range(rounds)]
    plain = statistics.median(pair["single"] for pair in pairs)
    stream = find_benchmark("split-mnist").build(seed=0, validation=False)
    slow = {
        name: 5
        * Straightforward(stream, every_step=every).seconds(
            epochs=1, batch=10, stored=80, steps=max(5, steps // (100 if every else 10)), samples=steps
        )
        for name, every in (("A inverted once an epoch", False), ("A inverted in every step, as printed", True))
    }
    side_by_side = statistics.median(pair["single"] / pair["replicas"] for pair in pairs)
    best = min(plain, statistics.median(pair["replicas"] for pair in pairs))
    return {
        "one after another / side by side": side_by_side,
        "straightforward / ours": {name: seconds / best for name, seconds in slow.items()},
        "steps that the straightforward one is extrapolated from": steps // 10,
        "seconds": {"pairs": pairs, "straightforward": slow},
    }


def _whole(configs: Sequence[RunConfig], engine: EngineName) -> float:
    """The seconds of whole runs, results and all, in a folder of their own."""
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(store=Store(Path(folder)), device=torch.device("cpu"), engine=engine)
        start = time.perf_counter()
        results = runner.do(configs)
        assert all(result.status == "finished" for result in results)
        return time.perf_counter() - start


def main() -> None:
    """Measure and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("where", choices=["cpu", "gpu", "waves"])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", help="methods, separated by commas")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    with Precision().arithmetic():
        if arguments.where == "gpu":
            found = on_gpu(arguments.steps, arguments.only)
        elif arguments.where == "waves":
            found = in_waves(arguments.steps)
        else:
            found = on_cpu(arguments.steps, arguments.rounds)
    environment = describe_environment(torch.device("cpu" if arguments.where == "cpu" else "cuda"))
    command = " ".join(["python", "bench/replicas.py", *sys.argv[1:]])
    document = {"command": command, "environment": environment, **found}
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / f"replicas-{arguments.where}.json").write_text(json.dumps(document, indent=2) + "\n")
    print(json.dumps({key: value for key, value in found.items() if key not in ("steps", "seconds")}, indent=2))


if __name__ == "__main__":
    main()
