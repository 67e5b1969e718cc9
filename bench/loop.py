"""What the training loop costs over its bare steps: forward, backward and update with the data already at hand.

    python bench/loop.py

Both do the same steps of the same run, the seconds of refresh and end of task left out on both sides, in turns; the
figure is the median over rounds of the ratio within a round. The loop's side has everything that a run of the command
line has: data read and shuffled, evaluation, diagnosis, a progress line, the log and the checkpoints. Seconds are the
processor's, on one thread: a busy machine stretches the others.
"""

import argparse
import io
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch.nn.functional import cross_entropy

from fopng import ContinualOptimizer
from fopng.lab.engine import Plan, Seeds, train
from fopng.lab.engine.observers import JsonLog, progress
from fopng.lab.engine.stages import Stage, predict_task
from fopng.lab.runs.request import build, configurations
from fopng.lab.schedule.runner import LOGGED_STEPS
from fopng.lab.storage.checkpoint import Checkpoint

CPU = torch.device("cpu")
RESULTS = Path(__file__).parent / "results" / "loop.json"
LIMIT = 1.10


class Estimates:
    """Makes a plan's optimizers, and counts the seconds that they spend in refresh and end of task."""

    def __init__(self, plan: Plan) -> None:
        self.make, self.seconds = plan.make_optimizer, 0.0

    def __call__(self, *arguments: Any, **more: Any) -> ContinualOptimizer:
        optimizer = self.make(*arguments, **more)
        optimizer.refresh = self.counted(optimizer.refresh)
        optimizer.end_task = self.counted(optimizer.end_task)
        return optimizer

    def counted(self, work: Callable[..., None]) -> Callable[..., None]:
        def count(*arguments: Any) -> None:
            started = time.process_time()
            work(*arguments)
            self.seconds += time.process_time() - started

        return count


def bare_seconds(plan: Plan) -> float:
    """The steps of a run and nothing else."""
    seeds = Seeds(plan.seed)
    model = plan.make_model(seeds.weights)
    first = torch.optim.SGD(model.parameters(), lr=plan.first_task_lr or 1e-2)
    generator = torch.Generator().manual_seed(seeds.fisher)
    optimizer = plan.make_optimizer(model, first_task=first, predict=predict_task, generator=generator)
    spent = 0.0
    for number, tasks in enumerate(plan.stages):
        stage = Stage(number, tasks, plan.stream, plan.batch_size, seeds, CPU)
        optimizer.begin_task(number)
        for epoch in range(plan.epochs):
            batches = list(stage.epoch(epoch, 0))
            optimizer.refresh(stage.whole())
            started = time.process_time()
            for task, x, y in batches:
                optimizer.zero_grad()
                cross_entropy(model(x, task=task), y).backward()
                optimizer.step()
            spent += time.process_time() - started
        optimizer.end_task(stage.whole())
    return spent


def loop_seconds(plan: Plan) -> tuple[float, dict[str, float]]:
    """The same run as the command line does it, less refresh and end of task; and its phases."""
    estimates = Estimates(plan)
    with tempfile.TemporaryDirectory() as folder:
        observers = [progress(Console(file=io.StringIO()), runs=1), JsonLog(Path(folder) / "log", every=LOGGED_STEPS)]
        started = time.process_time()
        outcome = train(
            replace(plan, make_optimizer=estimates),
            device=CPU,
            checkpoint=Checkpoint(Path(folder)),
            observers=observers,
        )
        spent = time.process_time() - started
    return spent - estimates.seconds, outcome.seconds_by_phase


def measure(method: str, rounds: int, epochs: int) -> dict[str, Any]:
    """A row of the table."""
    [config] = configurations(
        benchmark="rotated-mnist-5k", methods=[method], seeds=[0], epochs=epochs, assignments=["angles=0,10"]
    )
    plan = build(config, None)
    steps = plan.epochs * sum(-(-len(task.train) // plan.batch_size) for task in plan.stream)
    ratios, bare, loops = [], [], []
    for _ in range(rounds):
        bare.append(bare_seconds(plan))
        whole, phases = loop_seconds(plan)
        loops.append(whole)
        ratios.append(whole / bare[-1])
    return {
        "method": method,
        "steps": steps,
        "bare_microseconds_a_step": 1e6 * statistics.median(bare) / steps,
        "loop_microseconds_a_step": 1e6 * statistics.median(loops) / steps,
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "wall_seconds_by_phase": phases,
    }


def main() -> None:
    """Measure, print a table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = [measure(method, arguments.rounds, arguments.epochs) for method in ("sgd", "fopng")]
    print(f"{'method':8} {'bare, us/step':>14} {'loop, us/step':>14} {'ratio':>7}   limit {LIMIT}")
    for row in rows:
        times = f"{row['bare_microseconds_a_step']:14.1f} {row['loop_microseconds_a_step']:14.1f}"
        print(f"{row['method']:8} {times} {row['ratio']:7.3f}")
    RESULTS.parent.mkdir(exist_ok=True)
    facts = {"benchmark": "rotated-mnist-5k", "torch": torch.__version__, "threads": 1, "machine": platform.machine()}
    RESULTS.write_text(json.dumps({"command": "python bench/loop.py", **facts, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
