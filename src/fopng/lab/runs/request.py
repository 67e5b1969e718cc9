"""From what somebody asks for to the configurations of runs, and from a configuration to its run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, cast, final, get_args

from fopng.lab.benchmarks import Benchmark, DatasetBenchmark, Scenario, find_benchmark, settable
from fopng.lab.benchmarks.models import find_model, model_for
from fopng.lab.choices import ProtocolName
from fopng.lab.data.catalog import DATASETS, KnownDataset
from fopng.lab.data.samples import load
from fopng.lab.engine import PRECISIONS, MakeOptimizer, Plan, Precision, all_at_once, one_by_one
from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.hyperparameters import PaperEntry, nearest_row, paper_benchmarks, paper_entry
from fopng.lab.runs.settings import (
    TRAINING,
    SettingValue,
    Written,
    defaults_of,
    find_method,
    method_settings,
    parse_pairs,
    read_settings,
    read_settings_file,
    unknown,
)
from fopng.optim.registry import METHODS, MethodEntry

BENCHMARK_TABLE = "benchmark"
"""The table of a settings file that is for the benchmark."""


def configurations(
    *,
    benchmark: str,
    methods: Sequence[str],
    seeds: Sequence[int],
    dataset: str | None = None,
    scenario: str | None = None,
    model: str | None = None,
    protocol: str = "matched",
    first_task_lr: float | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    assignments: Sequence[str] | None = None,
    settings_file: Path | None = None,
    validation: bool = False,
    precision: str = "float32",
    data_dir: Path | None = None,
    choices: Sequence[Written] = ({},),
) -> list[RunConfig]:
    """The runs of some methods on a benchmark, seed by seed; what is None is the paper's choice, or the benchmark's.

    Everything is checked, and nothing built: the first mistake is a ValueError of one line.

    Args:
        benchmark: its name, a folder of images, or `module:function`.
        methods: their names.
        seeds: each once.
        dataset: another one than the benchmark's.
        scenario: another one than the benchmark's.
        model: `mlp`, `convnet` or `module:function`.
        protocol: what the first task is learnt with.
        first_task_lr: the rate of SGD on the first task, instead of the protocol's.
        epochs: for each task.
        batch_size: samples a step.
        assignments: `name=value` for a setting of the benchmark or of every method that has it, `method.name=value` for one's.
        settings_file: the same in TOML; assignments win.
        validation: hold back a part of the training set.
        precision: of the numbers.
        data_dir: where to look for a dataset first.
        choices: settings that every method has, laid over the others: so many variations of each run.
    """
    _check_words(protocol=protocol, precision=precision, scenario=scenario, methods=methods, seeds=seeds)
    entries = {name: find_method(name) for name in methods}
    tasks = _benchmark(benchmark, dataset, scenario)
    written = _written(benchmark, tasks, entries, settings_file, parse_pairs(assignments or ()))
    tasks = dataclasses.replace(cast(Any, tasks), **written.pop(BENCHMARK_TABLE))
    stream = _described(tasks, seeds[0], validation, data_dir)
    base = RunConfig(
        benchmark=benchmark,
        dataset=tasks.dataset if isinstance(tasks, DatasetBenchmark) else benchmark,
        scenario=stream.scenario,
        benchmark_parameters={name: cast(Any, vars(tasks)[name]) for name in settable(tasks)},
        model=model or ("convnet" if stream.channels > 1 else "mlp"),
        method="",
        settings={},
        protocol=protocol,
        first_task_lr=None,
        seed=0,
        epochs=1,
        batch_size=1,
        validation=validation,
        dtype=precision,
    )
    find_model(base.model)
    options = {"epochs": epochs, "batch_size": batch_size, "first_task_lr": first_task_lr}
    training = read_settings({name: value for name, value in options.items() if value is not None}, TRAINING, "a run")
    row = _row(benchmark, tasks, stream)
    found = [
        _configured(base, entry, row, {**written[entry.name], **choice}, training)
        for entry in entries.values()
        for choice in choices
    ]
    return [dataclasses.replace(config, seed=seed) for seed in seeds for config in found]


def build(config: RunConfig, data_dir: Path | None) -> Plan:
    """The run that a configuration describes.

    Args:
        config: what can change a number.
        data_dir: where to look for the dataset first.
    """
    entry = find_method(config.method)
    stream = benchmark_of(config).build(seed=config.seed, validation=config.validation, data_dir=data_dir)
    own_rate = float(cast(float, config.settings["lr"]))
    first = own_rate if config.first_task_lr is None else config.first_task_lr
    return Plan(
        label=f"{config.benchmark} {config.method} seed {config.seed}",
        stream=stream,
        stages=all_at_once(stream) if entry.joint else one_by_one(stream),
        make_model=lambda seed: model_for(stream, seed=seed, name=config.model),
        make_optimizer=cast(MakeOptimizer, partial(entry.optimizer, **cast(Any, config.settings))),
        first_task_lr=None if entry.joint else first,
        epochs=config.epochs,
        batch_size=config.batch_size,
        seed=config.seed,
        precision=Precision(config.dtype),
        facts=config.as_dict(),
    )


def require_data(configs: Iterable[RunConfig], data_dir: Path | None) -> None:
    """Raise `DataError` where the dataset of some run is not on this machine: before hours of other runs."""
    for dataset in dict.fromkeys(config.dataset for config in configs if config.dataset in DATASETS):
        load(dataset, data_dir)


def benchmark_of(config: RunConfig) -> Benchmark:
    """The benchmark that a configuration describes."""
    benchmark = find_benchmark(config.benchmark)
    if not isinstance(benchmark, DatasetBenchmark):
        return benchmark
    changes: dict[str, Any] = {**config.benchmark_parameters, "scenario": Scenario(config.scenario)}
    return dataclasses.replace(benchmark, dataset=config.dataset, **changes)


def paper_row(row: str, entry: MethodEntry) -> PaperEntry:
    """The paper's settings of a method on a benchmark; joint training learns all tasks as every method learns its first."""
    if not entry.joint:
        return paper_entry(row, entry.name)
    paper = paper_entry(row, "sgd")
    return dataclasses.replace(paper, settings={"lr": paper.first_task_lr})


@final
@dataclass(frozen=True)
class _Described:
    """What a configuration takes from the stream of tasks."""

    scenario: str
    channels: int
    classes: int


def _described(tasks: Benchmark, seed: int, validation: bool, data_dir: Path | None) -> _Described:
    """By the catalogue of datasets; only somebody's own stream or data is looked at."""
    known = DATASETS.get(tasks.dataset) if isinstance(tasks, DatasetBenchmark) else None
    if isinstance(tasks, DatasetBenchmark) and isinstance(known, KnownDataset):
        contents = known.contents
        tasks.check(contents.classes)
        return _Described(tasks.scenario.value, contents.image[0], contents.classes)
    return _looked_at(tasks, seed, validation, data_dir, Path.cwd())


@lru_cache(maxsize=64)
def _looked_at(tasks: Benchmark, seed: int, validation: bool, data_dir: Path | None, here: Path) -> _Described:
    """Once for each folder that the command is given in: a path may be relative to it."""
    stream = tasks.build(seed=seed, validation=validation, data_dir=data_dir)
    channels = stream.input_shape[0] if len(stream.input_shape) == 3 else 1
    return _Described(stream.scenario.value, channels, len({label for task in stream for label in task.classes}))


def _row(reference: str, tasks: Benchmark, stream: _Described) -> str:
    """The benchmark of the paper whose settings serve this one."""
    if reference in paper_benchmarks():
        return reference
    kind = tasks.kind if isinstance(tasks, DatasetBenchmark) else "split"
    return nearest_row(kind, channels=stream.channels, classes=stream.classes)


def _configured(
    base: RunConfig, entry: MethodEntry, row: str, written: Written, options: Mapping[str, SettingValue]
) -> RunConfig:
    """A method with its settings: its defaults, over them the paper's, over these what was written; options win."""
    paper, own = paper_row(row, entry), method_settings(entry)
    chosen = read_settings({**paper.settings, **written}, {**TRAINING, **own}, entry.name)
    # the printed text names no rate of SGD's on MNIST: there the first task is learnt with the method's own
    rate = None if base.protocol == "printed" and row.endswith("mnist") else paper.first_task_lr
    training: dict[str, Any] = {"epochs": paper.epochs, "batch_size": paper.batch_size, "first_task_lr": rate}
    training |= {name: value for name, value in {**chosen, **options}.items() if name in TRAINING}
    settings = {**defaults_of(entry), **{name: value for name, value in chosen.items() if name in own}}
    # raises for settings that do not go together
    entry.method(**cast(Any, {name: value for name, value in settings.items() if name != "lr"}))
    return dataclasses.replace(base, method=entry.name, settings=settings, **training)


def _check_words(
    *, protocol: str, precision: str, scenario: str | None, methods: Sequence[str], seeds: Sequence[int]
) -> None:
    for expected, word, known in (
        ("a protocol", protocol, get_args(ProtocolName)),
        ("a precision", precision, PRECISIONS),
        ("a scenario", scenario, tuple(Scenario)),
    ):
        if word is not None and word not in known:
            raise ValueError(unknown(expected, word, known))
    for kind, values in (("method", methods), ("seed", seeds)):
        if not values or len(set(values)) < len(values):
            raise ValueError(
                f"Expected each {kind} once, and one at least, got {', '.join(map(str, values)) or 'none'}."
            )
    if min(seeds) < 0:
        raise ValueError(f"Expected seeds of 0 or more, got {min(seeds)}.")


def _benchmark(reference: str, dataset: str | None, scenario: str | None) -> Benchmark:
    found = find_benchmark(reference)
    if isinstance(found, DatasetBenchmark):
        chosen = found.scenario if scenario is None else Scenario(scenario)
        return dataclasses.replace(found, dataset=dataset or found.dataset, scenario=chosen)
    if dataset is not None or scenario is not None:
        raise ValueError(f"Expected no dataset and no scenario for {reference}, which makes its own tasks.")
    return found


def _written(
    reference: str,
    tasks: Benchmark,
    entries: Mapping[str, MethodEntry],
    file: Path | None,
    assigned: Mapping[str, str],
) -> dict[str, dict[str, SettingValue]]:
    """What the file and the assignments set, for each method and for the benchmark."""
    known = {name: {**TRAINING, **method_settings(entry)} for name, entry in entries.items()}
    own = {**known, BENCHMARK_TABLE: dict(settable(tasks))}
    found: dict[str, dict[str, SettingValue]] = {owner: {} for owner in own}
    said = [] if file is None else read_settings_file(file, [*METHODS, BENCHMARK_TABLE])
    # a table of the file for a method that is not asked for is left out
    said = [each for each in said if not each[0] or each[0] in own]
    for target, text in assigned.items():
        method, _, setting = target.rpartition(".")
        if method and find_method(method).name not in known:
            raise ValueError(unknown("a method of this command", method, known))
        said.append((method, setting, text))
    for owner, name, value in said:
        # without its owner a name is the benchmark's if it has such a setting, or else that of every method that has it
        owners = [owner] if owner else [BENCHMARK_TABLE] if name in own[BENCHMARK_TABLE] else list(known)
        owners = [each for each in owners if owner or name in own[each]]
        if not owners:
            names = {each for settings in own.values() for each in settings}
            raise ValueError(unknown(f"a setting of {', '.join(known)} or of {reference}", name, names))
        for each in owners:
            found[each] |= read_settings({name: value}, own[each], "the benchmark" if each == BENCHMARK_TABLE else each)
    return found
