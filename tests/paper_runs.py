"""Results of the paper's experiments that were never run: the paper's configurations, any accuracy."""

import dataclasses
from typing import Any

from fopng.lab.benchmarks import PAPER, settable
from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.hyperparameters import paper_entry
from fopng.lab.runs.result import RunResult
from fopng.lab.runs.settings import defaults_of, find_method


def paper_run(
    benchmark: str,
    method: str,
    seed: int,
    accuracy: float,
    *,
    first: float = 0.99,
    seconds: float = 8.0,
    settings: Any = None,
    environment: Any = None,
    experiments: tuple[str, ...] = (),
    **changes: Any,
) -> RunResult:
    """Two tasks that end at this accuracy, give or take a little by seed; what it forgot is what it is below 1."""
    entry, made = paper_entry(benchmark, method), PAPER[benchmark]
    config = RunConfig(
        benchmark=benchmark,
        dataset=made.dataset,
        scenario=made.scenario.value,
        benchmark_parameters={name: getattr(made, name) for name in settable(made)},
        model="mlp" if benchmark.endswith("mnist") else "convnet",
        method=method,
        settings={**defaults_of(find_method(method)), **entry.settings, **(settings or {})},
        protocol="matched",
        first_task_lr=entry.first_task_lr,
        seed=seed,
        epochs=entry.epochs,
        batch_size=entry.batch_size,
        validation=False,
        dtype="float32",
    )
    final = accuracy + 1e-4 * ((seed * 7) % 5 - 2)
    return RunResult(
        config=dataclasses.replace(config, **changes),
        accuracy=((first, None), (final, final)),
        seconds_by_phase={"train": seconds},
        environment=environment or {"device_name": "a machine"},
        experiments=experiments,
    )
