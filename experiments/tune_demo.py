"""Choose the settings of `fopng demo` on the validation part of mnist-5k, and write them to src/fopng/demo.toml.

    python experiments/tune_demo.py --jobs 2

Every run is kept under runs/tune-demo: started again, it goes on. The seed is none of the demo's.
"""

import argparse
import itertools
from pathlib import Path
from typing import Any

from fopng.cli.work import Means, do_runs
from fopng.request import Request
from fopng.result import RunResult
from fopng.scores import Estimate, final_average_accuracy

SEEDS = (100,)
TARGET = Path(__file__).parent.parent / "src" / "fopng" / "demo.toml"
EPOCHS = {"split-mnist-5k": 4, "rotated-mnist-5k": 1, "permuted-mnist-5k": 1}
FIRST_TASK_LR = (3e-2, 1e-1, 2e-1)

NATURAL = {"lr": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2), "damping": (1e-3, 1e-2)}
PLAIN = {"lr": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)}
GRIDS: dict[str, dict[str, tuple[float, ...]]] = {
    "sgd": PLAIN,
    "adam": {"lr": (3e-5, 1e-4, 3e-4, 1e-3)},
    "ewc": {"lr": (1e-2, 3e-2, 1e-1), "strength": (10.0, 100.0, 1000.0)},
    "fng": NATURAL,
    "ogd": PLAIN,
    "fopng": NATURAL,
    "fopng-prefisher": NATURAL,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/tune-demo"))
    arguments = parser.parse_args()
    means = Means(out=arguments.out, jobs=arguments.jobs)
    lines = ["# Settings of `fopng demo`, chosen on the validation part of mnist-5k by experiments/tune_demo.py."]
    for benchmark in EPOCHS:
        lines += tune(benchmark, means)
    TARGET.write_text("\n".join(lines) + "\n", encoding="utf-8")


def tune(benchmark: str, means: Means) -> list[str]:
    """The table of one benchmark."""
    first = best_first_task_lr(benchmark, means)
    lines = ["", f"[{benchmark}]", f"epochs = {EPOCHS[benchmark]}", f"first_task_lr = {first:g}"]
    for method, grid in GRIDS.items():
        points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
        configs = [request(benchmark, method, first, assignments=words(point)).configurations() for point in points]
        results = iter(do_runs([config for some in configs for config in some], means))
        scored = [(score([next(results) for _ in SEEDS]), point) for point in points]
        best, chosen = max(scored, key=lambda pair: pair[0])
        print(f"{benchmark} {method}: {chosen} {100 * best:.2f} % on validation")
        lines += ["", f"[{benchmark}.{method}]", *(f"{name} = {value:g}" for name, value in chosen.items())]
    return lines


def best_first_task_lr(benchmark: str, means: Means) -> float:
    """The rate at which SGD learns the first task best."""
    one_task = {"rotated-mnist-5k": ["angles=0"]}.get(benchmark, ["tasks=1"])
    scored = []
    for rate in FIRST_TASK_LR:
        configs = request(benchmark, "sgd", rate, assignments=one_task).configurations()
        scored.append((score(do_runs(configs, means)), rate))
    return max(scored)[1]


def request(benchmark: str, method: str, first: float, **more: Any) -> Request:
    return Request(
        benchmark=benchmark,
        methods=[method],
        seeds=SEEDS,
        epochs=EPOCHS[benchmark],
        first_task_lr=first,
        validation=True,
        **more,
    )


def words(point: dict[str, float]) -> list[str]:
    return [f"{name}={value!r}" for name, value in point.items()]


def score(results: list[RunResult]) -> float:
    """The mean final accuracy on validation; a run that diverged counts as nothing learnt."""
    finals = [
        final_average_accuracy(result.validation_accuracy or ()) if result.status == "finished" else 0.0
        for result in results
    ]
    return Estimate.of(finals).mean


if __name__ == "__main__":
    main()
