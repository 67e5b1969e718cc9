"""Variants of `fopng-k` that are no options, measured beside it on small benchmarks (docs/results/fopng-k-study.md).

    python bench/kronecker_trials.py

5,000 digits, MLP, batches of 10, 3 epochs a task; mean accuracy over all tasks on the part held out, in the end. Every
variant has a grid of six points; the best on some seeds, benchmark by benchmark, is then run with fresh ones, and compared
with the best of `fopng-k` and with one point for all (its defaults, when this was measured), seed by seed, all without evenness.
The first task is plain SGD's, the same for all.
What is done is in `bench/results/kronecker-trials.jsonl`, a line a run, and is not done again: delete the file to start over.
"""

import argparse
import copy
import json
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fopng import ContinualOptimizer
from fopng.lab.engine import Plan, Seeds
from fopng.lab.engine.evaluation import Evaluator, answers_of, split_of
from fopng.lab.engine.plan import mean
from fopng.lab.engine.stages import Stage, predict_task
from fopng.lab.runs.request import build, configurations
from fopng.lab.runs.scores import paired_difference
from fopng.optim.fopng_k import KroneckerFOPNG
from kronecker_variants import Corrected, Hard, KaoSum, Natural, Pulled, Scaled

CPU = torch.device("cpu")
RESULTS = Path(__file__).parent / "results" / "kronecker-trials.jsonl"
BENCHMARKS = {"permuted": ["tasks=4"], "split": [], "rotated": []}
CHOSEN_ON = {"permuted": range(1), "split": range(3), "rotated": range(1)}
"""The seeds of the grids: more of them where a task has few samples."""
MEASURED_ON = {"permuted": range(3, 7), "split": range(3, 15), "rotated": range(3, 7)}


def grid(lrs: Iterable[float], **settings: Iterable[Any]) -> list[dict[str, Any]]:
    """Every combination, the strength 30 where none is given."""
    points: list[dict[str, Any]] = [{"lr": lr, "strength": 30.0} for lr in lrs]
    for name, values in settings.items():
        points = [{**point, name: value} for point in points for value in values]
    return points


SAME = grid((0.1, 0.2), strength=(10.0, 30.0, 100.0))
TRIALS: dict[str, tuple[type[KroneckerFOPNG], list[dict[str, Any]]]] = {
    "fopng-k": (KroneckerFOPNG, SAME),
    "corrected": (Corrected, SAME),
    "kao-sum": (KaoSum, SAME),
    "hard": (Hard, grid((0.1, 0.2), strength=(3.0, 10.0, 30.0))),
    "pulled": (Pulled, grid((0.1, 0.2), strength=(10.0, 30.0, 100.0), pull=(3e-3,))),
    "natural": (
        Natural,
        [
            *grid((0.003, 0.01), damping=(0.1,)),
            *grid((0.01,), damping=(0.01,)),
            *grid((0.01, 0.03), damping=(0.01,), first=(True,)),
            *grid((0.03,), damping=(0.1,), first=(True,)),
        ],
    ),
    "scaled": (
        Scaled,
        [
            *grid((0.0003, 0.001)),
            *grid((0.001,), strength=(300.0,)),
            *grid((0.001, 0.003), strength=(100.0,), first=(True,)),
            *grid((0.01,), strength=(300.0,), first=(True,)),
        ],
    ),
}
THEN = {"lr": 0.1, "strength": 30.0}
"""The default when the trials were made."""
ONE_FOR_ALL = {"corrected": THEN, "scaled": {"lr": 0.0003, "strength": 30.0}}
"""What is better on Split, at one point for all benchmarks."""


class Bench:
    """The benchmarks with the model that SGD left after the first task, by seed."""

    def __init__(self) -> None:
        self.started: dict[tuple[str, int], tuple[Plan, nn.Module]] = {}

    def start(self, benchmark: str, seed: int) -> tuple[Plan, nn.Module]:
        if (benchmark, seed) not in self.started:
            [config] = configurations(
                benchmark=f"{benchmark}-mnist",
                methods=["fopng-k"],
                seeds=[seed],
                dataset="mnist-5k",
                epochs=3,
                assignments=BENCHMARKS[benchmark],
                validation=True,
            )
            plan = build(config, None)
            model = plan.make_model(Seeds(seed).weights)
            learn(plan, model, torch.optim.SGD(model.parameters(), lr=plan.first_task_lr), 0)
            self.started[benchmark, seed] = plan, model
        return self.started[benchmark, seed]

    def run(self, benchmark: str, seed: int, method: KroneckerFOPNG, lr: float) -> float:
        """The mean accuracy in the end; 0 for a run that diverged."""
        plan, first = self.start(benchmark, seed)
        model, seeds = copy.deepcopy(first), Seeds(seed)
        generator = torch.Generator().manual_seed(seeds.fisher)
        optimizer = ContinualOptimizer(model, lr, method, "own", predict_task, None, None, generator)
        try:
            for task in range(len(plan.stream)):
                optimizer.begin_task(task)
                if task:
                    learn(plan, model, optimizer, task)
                if task + 1 < len(plan.stream):
                    optimizer.end_task(stage_of(plan, task).whole())
        except (FloatingPointError, ValueError):
            return 0.0
        tasks = len(plan.stream)
        evaluator = Evaluator(
            lambda n, part: answers_of(model, split_of(plan.stream, n, part), n, seeds, CPU), 1, tasks
        )
        return mean(evaluator.evaluate(range(tasks), "validation")[0].accuracy)


def stage_of(plan: Plan, task: int) -> Stage:
    """A task of a plan, and how its samples come."""
    return Stage(task, (task,), plan.stream, plan.batch_size, Seeds(plan.seed), CPU)


def learn(plan: Plan, model: nn.Module, optimizer: torch.optim.Optimizer, task: int) -> None:
    """Learn a task as the training loop does."""
    stage = stage_of(plan, task)
    for epoch in range(plan.epochs):
        if isinstance(optimizer, ContinualOptimizer):
            optimizer.refresh(stage.whole())
        for head, x, y in stage.epoch(epoch, 0):
            optimizer.zero_grad()
            cross_entropy(model(x, task=head), y).backward()
            optimizer.step()


class Book:
    """What is done, by variant, benchmark, point and seed."""

    def __init__(self, path: Path) -> None:
        self.path, self.bench = path, Bench()
        lines = path.read_text().splitlines() if path.exists() else []
        self.done = {key_of(line): line["accuracy"] for line in map(json.loads, lines)}

    def accuracy(self, name: str, benchmark: str, point: Mapping[str, Any], seed: int) -> float:
        """Of one run, in percent; done now if it is not yet."""
        line: dict[str, Any] = {"variant": name, "benchmark": benchmark, "point": dict(point), "seed": seed}
        if key_of(line) not in self.done:
            settings = {key: value for key, value in point.items() if key != "lr"}
            method = TRIALS[name][0](
                momentum=0.0,
                evenness=0.0,
                growth=1.0,
                balance=0.0,
                full_steps=0,
                signals="normal",
                fisher_samples=2000,
                rank=128,
                averaging=0.0,
                merging=0.0,
                **settings,
            )
            line["accuracy"] = round(100 * self.bench.run(benchmark, seed, method, point["lr"]), 4)
            with self.path.open("a") as file:
                file.write(json.dumps(line) + "\n")
            self.done[key_of(line)] = line["accuracy"]
        return self.done[key_of(line)]

    def mean(self, name: str, benchmark: str, point: Mapping[str, Any]) -> float:
        """Over the seeds that points are chosen on."""
        return statistics.mean(self.accuracy(name, benchmark, point, seed) for seed in CHOSEN_ON[benchmark])

    def fresh(self, name: str, benchmark: str, point: Mapping[str, Any]) -> list[float]:
        """One number for each seed that is measured on."""
        return [self.accuracy(name, benchmark, point, seed) for seed in MEASURED_ON[benchmark]]


def key_of(line: Mapping[str, Any]) -> str:
    """What tells a run from all others."""
    return json.dumps([line[name] for name in ("variant", "benchmark", "point", "seed")], sort_keys=True)


def difference(own: list[float], other: list[float]) -> str:
    """The mean of the paired differences, with its 95 % interval."""
    apart = paired_difference(dict(enumerate(own)), dict(enumerate(other)))
    return f"{apart.mean:+.2f} ± {apart.half_width(0.95):.2f}"


def main() -> None:
    """Do what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS, help="where runs are written, a line each")
    book = Book(parser.parse_args().results)
    torch.set_num_threads(1)
    best = {
        (benchmark, name): max(points, key=lambda point, b=benchmark, n=name: book.mean(n, b, point))
        for name, (_, points) in TRIALS.items()
        for benchmark in BENCHMARKS
    }
    for benchmark in BENCHMARKS:
        default = book.fresh("fopng-k", benchmark, THEN)
        tuned = book.fresh("fopng-k", benchmark, best[benchmark, "fopng-k"])
        print(f"{benchmark}: fopng-k at {THEN} {statistics.mean(default):.2f}")
        for name, point in [*((name, best[benchmark, name]) for name in TRIALS), *ONE_FOR_ALL.items()]:
            own = book.fresh(name, benchmark, point)
            print(f"  {name:10} {book.mean(name, benchmark, point):6.2f} {statistics.mean(own):6.2f}", end="  ")
            print(f"best {difference(own, tuned):15} defaults {difference(own, default):15} {point}")


if __name__ == "__main__":
    main()
