"""Choose the settings of `fopng demo` on the validation part of mnist-5k, and write them to src/fopng/lab/runs/demo.toml.

    python tools/tune_demo.py --jobs 2

Every run is kept under runs/tune-demo: started again, it goes on. The seed is none of the demo's.
"""

import argparse
from pathlib import Path
from typing import Any

from fopng.cli.work import do_runs
from fopng.lab.runs.findings import Response
from fopng.lab.runs.store import Store
from fopng.lab.schedule.machine import find_device
from fopng.lab.schedule.runner import Runner
from fopng.lab.sweep import conduct, parse_sweep

SEEDS = [100]
TARGET = Path(__file__).parent.parent / "src" / "fopng" / "lab" / "runs" / "demo.toml"
EPOCHS = {"split-mnist-5k": 4, "rotated-mnist-5k": 1, "permuted-mnist-5k": 1}
ONE_TASK: dict[str, dict[str, Any]] = {
    "split-mnist-5k": {"tasks": 1},
    "rotated-mnist-5k": {"angles": [0]},
    "permuted-mnist-5k": {"tasks": 1},
}
FIRST_TASK_LR = [3e-2, 1e-1, 2e-1]

NATURAL = {"lr": [1e-4, 3e-4, 1e-3, 3e-3, 1e-2], "damping": [1e-3, 1e-2]}
PLAIN = {"lr": [1e-3, 3e-3, 1e-2, 3e-2, 1e-1]}
GRIDS = {
    "sgd": PLAIN,
    "adam": {"lr": [3e-5, 1e-4, 3e-4, 1e-3]},
    "ewc": {"lr": [1e-2, 3e-2, 1e-1], "strength": [10.0, 100.0, 1000.0]},
    "fng": NATURAL,
    "ogd": PLAIN,
    "fopng": NATURAL,
    "fopng-prefisher": NATURAL,
    "fopng-k": {"lr": [3e-2, 1e-1, 3e-1], "strength": [10.0, 30.0, 100.0]},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/tune-demo"))
    arguments = parser.parse_args()
    runner = Runner(store=Store(arguments.out), device=find_device("auto"), jobs=arguments.jobs)
    lines = ["# Settings of `fopng demo`, chosen on the validation part of mnist-5k by tools/tune_demo.py."]
    for benchmark in EPOCHS:
        lines += tune(benchmark, runner)
    TARGET.write_text("\n".join(lines) + "\n", encoding="utf-8")


def tune(benchmark: str, runner: Runner) -> list[str]:
    """The table of one benchmark: the rate at which SGD learns the first task best, then every method's settings."""
    one_task = {"benchmark": ONE_TASK[benchmark], "methods": {"sgd": {"first_task_lr": FIRST_TASK_LR}}}
    [first] = sweep(benchmark, runner, one_task)
    rate = chosen(first)["first_task_lr"]
    lines = ["", f"[{benchmark}]", f"epochs = {EPOCHS[benchmark]}", f"first_task_lr = {rate:g}"]
    for response in sweep(benchmark, runner, {"methods": GRIDS, "first_task_lr": rate}):
        settings = {name: chosen(response)[name] for name in GRIDS[response.method]}
        print(f"{benchmark} {response.method}: {settings}")
        lines += ["", f"[{benchmark}.{response.method}]", *(f"{name} = {value:g}" for name, value in settings.items())]
    return lines


def sweep(benchmark: str, runner: Runner, members: dict[str, Any]) -> tuple[Response, ...]:
    shared = {"benchmarks": [benchmark], "epochs": EPOCHS[benchmark], "validation": {"seeds": SEEDS}}
    return conduct(parse_sweep({**shared, **members}, "demo"), lambda configs: do_runs(configs, runner)).responses


def chosen(response: Response) -> dict[str, Any]:
    if response.chosen is None:
        raise SystemExit(f"Nothing could be chosen for {response.method}: {' '.join(response.notes)}")
    return dict(response.chosen.settings)


if __name__ == "__main__":
    main()
