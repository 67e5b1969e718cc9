"""Short tables for README, findings and performance, from committed results and measurements."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from fopng.lab.runs.config import canonical_json
from fopng.lab.runs.frame import frame
from fopng.lab.runs.result import RunResult
from fopng.lab.runs.scores import Estimate, final_average_accuracy, holm, paired_difference
from fopng.lab.runs.store import load_results
from reproduction import FOLDER
from reproduction.tables import table

BENCH = FOLDER.parent / "bench" / "results"
STREAMS = {
    "split-mnist": "Split-MNIST",
    "rotated-mnist": "Rotated-MNIST",
    "permuted-mnist": "Permuted-MNIST",
    "split-cifar10": "Split-CIFAR10",
    "split-cifar100": "Split-CIFAR100",
}
CONTENDERS = ("sgd", "ewc", "fopng", "ncl", "fopng-k")
"""Across the README's table."""

CHOSEN = ("chosen/methods", "chosen/cifar")
LEVEL = 0.05


def finding(results: Sequence[RunResult], benchmark: str, *methods: str) -> str:
    """Methods on a stream under each condition, or on all of them tuned (`all`)."""
    every = _exploded(results)
    if benchmark == "all":
        return _everywhere(every, methods)
    own = _printed_form(every[every.benchmark == benchmark])
    conditions = {
        "matched": own[(own.experiments == "comparison/paper") & (own.protocol == "matched")],
        "printed": own[(own.experiments == "comparison/paper") & (own.protocol == "printed")],
        "tuned": own[own.experiments.isin(CHOSEN)],
    }
    conditions = {name: runs for name, runs in conditions.items() if len(runs)}
    rows = [[f"`{method}`", *(_of(runs, method) for runs in conditions.values())] for method in methods]
    return table([STREAMS[benchmark], *conditions], rows)


def _exploded(results: Sequence[RunResult]) -> pd.DataFrame:
    """A row for each run and experiment."""
    return frame(results).explode("experiments")


def _everywhere(every: pd.DataFrame, methods: Sequence[str]) -> str:
    tuned = _printed_form(every[every.experiments.isin(CHOSEN)])
    streams = {benchmark: tuned[tuned.benchmark == benchmark] for benchmark in STREAMS}
    rows = [[f"`{method}`", *(_of(runs, method) for runs in streams.values())] for method in methods]
    return table(["tuned", *STREAMS.values()], rows)


def ablation(results: Sequence[RunResult], setting: str) -> str:
    """The accuracy with each value of a setting."""
    every = _exploded(results)
    runs = every[every.experiments == f"ablation/{setting}"]
    values = runs.settings.map(lambda text: json.loads(text)[setting])
    benchmarks = [name for name in STREAMS if name in set(runs.benchmark)]
    rows = [
        [f"{value:g}", *(_estimate(runs[(values == value) & (runs.benchmark == name)]) for name in benchmarks)]
        for value in sorted(set(values))
    ]
    return table([f"`{setting}`", *(STREAMS[name] for name in benchmarks)], rows)


def streams(results: Sequence[RunResult]) -> str:
    """Long streams, with the settings chosen on the held-out data of 20 tasks."""
    runs_of = {tasks: load_results([BENCH / f"stream-{tasks}"]) for tasks in (20, 50)}
    best = chosen(runs_of[20])
    on_test = {tasks: frame(run for run in runs if is_chosen(run, best)) for tasks, runs in runs_of.items()}
    order = sorted(best, key=lambda name: -on_test[20][on_test[20].method == name].final_accuracy.mean())
    rows = [[f"`{method}`", *(_of(runs, method) for runs in on_test.values())] for method in order]
    return table(["", *(f"after {tasks} tasks" for tasks in on_test)], rows)


def chosen(results: Iterable[RunResult]) -> dict[str, str]:
    """The settings of each method that were best on held-out data."""
    tried = frame(run for run in results if run.config.validation)
    held_out = {run.config.key: final_average_accuracy(run.validation_accuracy or ()) for run in results}
    scores = tried.key.map(held_out)
    best = tried.assign(score=scores).groupby(["method", "settings"]).score.mean().groupby("method").idxmax()
    return dict(best.tolist())


def is_chosen(run: RunResult, best: Mapping[str, str]) -> bool:
    """Whether a run on test has the settings that were best for its method."""
    return not run.config.validation and canonical_json(run.config.settings) == best.get(run.config.method)


def steps(results: Sequence[RunResult]) -> str:
    """The cost of a step of every method, over plain SGD's."""
    ratios = json.loads((BENCH / "step.json").read_text(encoding="utf-8"))["ratios"]
    names = [name for name in ratios["mlp"] if not name.startswith(("torch", "microseconds"))]
    rows = [[f"`{name}`", f"{ratios['mlp'][name]:.1f}", f"{ratios['cnn'][name]:.1f}"] for name in names]
    half = -(-len(rows) // 2)
    paired = [[*left, *right] for left, right in zip(rows[:half], [*rows[half:], *[["", "", ""]] * half], strict=False)]
    return table(["", "MLP", "CNN", "", "MLP", "CNN"], paired)


def core(results: Sequence[RunResult]) -> str:
    """What factored gradients save."""
    measured = json.loads((BENCH / "core.json").read_text(encoding="utf-8"))["measured"]
    fisher, kept = measured["MLP, diagonal Fisher, batches of 256 (samples/s)"], measured["MLP, 400 directions"]
    ours = fisher["fopng"]
    rows = [
        ["diagonal Fisher, against BackPACK", _times(ours / fisher["BackPACK"])],
        ["diagonal Fisher, against a loop over samples", _times(ours / fisher["loop"])],
        [
            "a projection with 400 directions, against dense",
            _times(kept["projection, dense (ms)"] / kept["projection, fopng (ms)"]),
        ],
        [
            "memory of 400 directions, against dense",
            f"{kept['memory, dense (MB)'] / kept['memory, fopng (MB)']:.0f} times less",
        ],
    ]
    return table(["the paper's MLP", ""], rows)


def fishers(results: Sequence[RunResult]) -> str:
    """What Fishers cost as metrics."""
    ratios = json.loads((BENCH / "fishers.json").read_text(encoding="utf-8"))["ratios"]["mlp"]
    rows = [
        [f"`{name}`", f"{found['step']:.2g}", f"{found['refresh']:.2g}", f"{found['bytes'] / 2**20:.1f} MiB"]
        for name, found in ratios.items()
    ]
    return table(["metric", "step", "refresh", "kept"], rows)


def replicas(results: Sequence[RunResult]) -> str:
    """Microseconds a step and run, side by side on a GPU."""
    steps = json.loads((BENCH / "replicas-gpu.json").read_text(encoding="utf-8"))["steps"]
    columns = [("mlp", 1), ("mlp", 5), ("mlp", 35), ("cnn", 1), ("cnn", 5), ("cnn", 15)]
    found = {(step["model"].lower(), step["method"], step["m"], step["R"]): step for step in steps}
    shown = [("sgd", 0), ("ewc", 0), ("ogd", 320), ("fopng", 320), ("gpm", 0), ("ncl", 0), ("fopng-k", 0), ("er", 0)]
    rows = [
        [f"`{name}`", *(_microseconds(found, model, name, m, runs) for model, runs in columns)] for name, m in shown
    ]
    return table(["", *(f"{model.upper()}, {runs} run{'s' * (runs > 1)}" for model, runs in columns)], rows)


def _microseconds(
    found: Mapping[tuple[str, str, int, int], Mapping[str, float]], model: str, name: str, m: int, runs: int
) -> str:
    step = found.get((model, name, m, runs))
    return "" if step is None else f"{step['us a step and replica']:.0f}"


def _times(ratio: float) -> str:
    return f"{ratio:.1f} times faster" if ratio < 10 else f"{ratio:.0f} times faster"


def _of(every: pd.DataFrame, method: str) -> str:
    return _estimate(every[every.method == method])


def _estimate(runs: pd.DataFrame) -> str:
    return _cell(Estimate.of(list(_by_seed(runs).values()))) if len(runs) else ""


def _by_seed(runs: pd.DataFrame) -> dict[int, float | None]:
    return {
        int(seed): None if math.isnan(a) else float(a) for seed, a in zip(runs.seed, runs.final_accuracy, strict=True)
    }


def _cell(estimate: Estimate, *, bold: bool = False) -> str:
    half = estimate.half_width(0.95)
    text = f"{100 * estimate.mean:.1f}" + ("" if math.isnan(half) else f" ± {100 * half:.1f}")
    lost = f" ({estimate.missing} diverged)" if estimate.missing else ""
    return (f"**{text}**" if bold else text) + lost


def _printed_form(every: pd.DataFrame) -> pd.DataFrame:
    """Without the orthogonal form, which is not the paper's."""
    orthogonal = every.settings.map(lambda text: json.loads(text).get("projection") == "orthogonal")
    return every[~(orthogonal & every.method.isin(["fopng", "fopng-prefisher"]))]


def _level_with_the_best(scores: Mapping[str, Mapping[int, float | None]]) -> set[str]:
    """The method with the highest mean, and those that cannot be told from it (paired t tests over seeds, Holm's correction)."""
    means = {name: Estimate.of(list(found.values())).mean for name, found in scores.items() if found}
    leader = max(means, key=lambda name: means[name])
    others = [name for name in means if name != leader]
    told = holm([paired_difference(scores[leader], scores[name]).p_value for name in others], LEVEL)
    return {leader, *(name for name, apart in zip(others, told, strict=True) if not apart)}
