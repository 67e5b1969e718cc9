"""The command that makes runs again: a published number has it beside it."""

import shlex
from collections.abc import Mapping, Sequence

from fopng.lab.runs.config import RunConfig, Value, canonical_json


def command_of(config: RunConfig, seeds: Sequence[int]) -> str:
    """The shell's line for runs that differ in their seed alone, every setting spelt out: a default may change.

    Args:
        config: one of the runs.
        seeds: those of all of them.
    """
    words = ["fopng", "run", config.benchmark, config.method, "--seeds", _seeds(seeds), "--protocol", config.protocol]
    # A stream of somebody's own has no parameters, and makes its dataset and its scenario itself.
    if config.benchmark_parameters:
        words += ["--dataset", config.dataset, "--scenario", config.scenario]
    words += ["--model", config.model, "--epochs", str(config.epochs), "--batch-size", str(config.batch_size)]
    if config.first_task_lr is not None:
        words += ["--first-task-lr", _written(config.first_task_lr)]
    if config.dtype != "float32":
        words += ["--precision", config.dtype]
    if config.validation:
        words.append("--validation")
    for assignment in _assignments(config):
        words += ["--set", assignment]
    return shlex.join(words)


def _seeds(seeds: Sequence[int]) -> str:
    ordered = sorted(set(seeds))
    if ordered == list(range(len(ordered))):
        return str(len(ordered))
    return ",".join(map(str, ordered)) + ("," if len(ordered) == 1 else "")


def _assignments(config: RunConfig) -> list[str]:
    # A name without its method is the benchmark's where both have it.
    own = {
        f"{config.method}.{name}" if name in config.benchmark_parameters else name: value
        for name, value in config.settings.items()
    }
    parameters: Mapping[str, Value] = {**config.benchmark_parameters, **own}
    return [f"{name}={_written(value)}" for name, value in sorted(parameters.items())]


def _written(value: Value) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(_written, value))
    # The canonical text: 400 and 400.0 are one value, and give one command.
    return value if isinstance(value, str) else canonical_json(value)
