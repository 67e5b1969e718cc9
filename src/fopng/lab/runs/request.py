"""What somebody asks for, checked as a whole before any work starts, and made into configurations."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast, final

from fopng.lab.benchmarks import (
    BENCHMARKS,
    Benchmark,
    ImageBenchmark,
    Scenario,
    TaskStream,
    configure,
    find_benchmark,
    settable,
)
from fopng.lab.benchmarks.models import model_for
from fopng.lab.engine import PRECISIONS, MakeOptimizer, Plan, Precision, all_at_once, one_by_one
from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.hyperparameters import PaperEntry, nearest_row, paper_benchmarks, paper_entry
from fopng.lab.runs.settings import (
    Setting,
    SettingsFile,
    SettingValue,
    check_settings,
    parse_pairs,
    read_settings_file,
    settings_of,
    unknown,
)
from fopng.optim.registry import METHODS, MethodEntry

PROTOCOLS = ("matched", "printed")

BENCHMARK_TABLE = "benchmark"
"""The table of a settings file that is for the benchmark."""

TRAINING = {
    "epochs": Setting("epochs", (int,), (), optional=False, required=False),
    "batch_size": Setting("batch_size", (int,), (), optional=False, required=False),
    "first_task_lr": Setting("first_task_lr", (float,), (), optional=False, required=False),
}
"""What can be set for a method as if it were its own: how it is trained."""


@final
@dataclass(frozen=True, kw_only=True)
class Request:
    """Some methods on a benchmark, with several seeds. What is None is the paper's choice."""

    benchmark: str
    methods: Sequence[str]
    seeds: Sequence[int]
    dataset: str | None = None
    scenario: str | None = None
    model: str | None = None
    protocol: str = "matched"
    first_task_lr: float | None = None
    """The rate of SGD on the first task, instead of the protocol's."""
    epochs: int | None = None
    batch_size: int | None = None
    assignments: Sequence[str] = ()
    """`name=value` for a setting of the benchmark or of every method that has it, `method.name=value` for one method's."""
    settings_file: Path | None = None
    validation: bool = False
    precision: str = "float32"
    data_dir: Path | None = None

    def configurations(self) -> list[RunConfig]:
        """The runs, seed by seed; the first mistake in the request is a ValueError of one line."""
        return self.variations([{}])

    def variations(self, choices: Sequence[Mapping[str, Any]]) -> list[RunConfig]:
        """The runs for each of several choices of settings, laid over the others; what they share is built once.

        Args:
            choices: values of settings that every method of the request has.
        """
        self._check_words()
        _check_training({name: getattr(self, name) for name in TRAINING})
        entries = [find_method(name) for name in self.methods]
        written = self._written(entries)
        benchmark = self._benchmark(written.benchmark)
        stream = benchmark.build(seed=self.seeds[0], validation=self.validation, data_dir=self.data_dir)
        model_name = self.model or ("convnet" if _channels(stream) > 1 else "mlp")
        model = model_for(stream, seed=0, name=model_name)
        base = _base(self, benchmark, stream, model_name)
        found = []
        for entry in entries:
            paper = paper_row(self.benchmark, benchmark, stream, entry)
            rate = self._protocols_rate(paper, benchmark, stream)
            for choice in choices:
                config = self._configured(base, entry, paper, rate, {**written.methods[entry.name], **choice})
                entry.optimizer(model, **_arguments(config))  # refuses values outside their range
                found.append(config)
        return [dataclasses.replace(config, seed=seed) for seed in self.seeds for config in found]

    def _configured(
        self, base: RunConfig, entry: MethodEntry, paper: PaperEntry, rate: float | None, written: Mapping[str, object]
    ) -> RunConfig:
        """A method with its settings: its defaults, over them the paper's, over these what was written."""
        own = settings_of(entry.optimizer)
        chosen = check_settings({**paper.settings, **written}, {**TRAINING, **own}, entry.name)
        training = {
            "epochs": paper.epochs,
            "batch_size": paper.batch_size,
            "first_task_lr": rate,
            **{name: value for name, value in chosen.items() if name not in own},
            **{name: value for name in TRAINING if (value := getattr(self, name)) is not None},
        }
        _check_training(training)
        settings = {**defaults_of(entry), **{name: value for name, value in chosen.items() if name in own}}
        return dataclasses.replace(base, method=entry.name, settings=settings, **training)

    def _check_words(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise ValueError(unknown("a protocol", self.protocol, PROTOCOLS))
        if self.precision not in PRECISIONS:
            raise ValueError(unknown("a precision", self.precision, PRECISIONS))
        if self.scenario is not None and self.scenario not in list(Scenario):
            raise ValueError(unknown("a scenario", self.scenario, list(Scenario)))
        for kind, values in (("method", self.methods), ("seed", self.seeds)):
            if not values or len(set(values)) < len(values):
                raise ValueError(
                    f"Expected each {kind} once, and one at least, got {', '.join(map(str, values)) or 'none'}."
                )
        if min(self.seeds) < 0:
            raise ValueError(f"Expected seeds of 0 or more, got {min(self.seeds)}.")

    def _benchmark(self, words: Mapping[str, str]) -> Benchmark:
        benchmark = find_benchmark(self.benchmark)
        if not isinstance(benchmark, ImageBenchmark):
            if self.dataset is not None or self.scenario is not None:
                raise ValueError(
                    f"Expected no dataset and no scenario for {self.benchmark}, which makes its own tasks."
                )
            return benchmark
        if self.dataset is not None:
            benchmark = dataclasses.replace(benchmark, dataset=self.dataset)
        if self.scenario is not None:
            benchmark = dataclasses.replace(benchmark, scenario=Scenario(self.scenario))
        return configure(benchmark, words)

    def _written(self, entries: Sequence[MethodEntry]) -> _Written:
        """What the file and the assignments set, for the benchmark and for each method."""
        benchmark = find_benchmark(self.benchmark)
        words = set(settable(benchmark)) - {"scenario"} if isinstance(benchmark, ImageBenchmark) else set()
        written = _Written(
            {entry.name: {**TRAINING, **settings_of(entry.optimizer)} for entry in entries}, words, self.benchmark
        )
        if self.settings_file is not None:
            written.add_file(read_settings_file(self.settings_file, [*METHODS, BENCHMARK_TABLE]))
        for name, value in parse_pairs(self.assignments).items():
            method, dot, setting = name.rpartition(".")
            if dot:
                written.add_for(find_method(method).name, setting, value)
            else:
                written.add(name, value)
        return written

    def _protocols_rate(self, paper: PaperEntry, benchmark: Benchmark, stream: TaskStream) -> float | None:
        """SGD's on the first task. The printed text names one for CIFAR only; for MNIST it is the method's own."""
        own = self.protocol == "printed" and _row_name(self.benchmark, benchmark, stream).endswith("mnist")
        return None if own else paper.first_task_lr


@final
class _Written:
    """What was written, sorted by whom it is for."""

    def __init__(self, settings: Mapping[str, Mapping[str, Setting]], words: set[str], where: str) -> None:
        self._settings, self._words, self._where = settings, words, where
        self.benchmark: dict[str, str] = {}
        self.methods: dict[str, dict[str, SettingValue]] = {name: {} for name in settings}

    def add_file(self, file: SettingsFile) -> None:
        for name, value in file.shared.items():
            self.add(name, value)
        for table, members in file.tables.items():
            for name, value in members.items():
                if table == BENCHMARK_TABLE:
                    self._add_word(name, value)
                elif table in self._settings:
                    self.add_for(table, name, value)

    def add(self, name: str, value: object) -> None:
        """For the benchmark if it has such a setting, or else for every method that has it: one must."""
        having = [method for method, settings in self._settings.items() if name in settings]
        if name in self._words:
            self._add_word(name, value)
        elif having:
            for method in having:
                self.add_for(method, name, value)
        else:
            known = {name for settings in self._settings.values() for name in settings} | self._words
            raise ValueError(unknown(f"a setting of {', '.join(self._settings)} or of {self._where}", name, known))

    def add_for(self, method: str, name: str, value: object) -> None:
        if method not in self._settings:
            raise ValueError(unknown("a method of this command", method, self._settings))
        self.methods[method] |= check_settings({name: value}, self._settings[method], method)

    def _add_word(self, name: str, value: object) -> None:
        if name not in self._words:
            raise ValueError(unknown("a setting of the benchmark", name, self._words))
        self.benchmark[name] = word(value)


def _check_training(training: Mapping[str, Any]) -> None:
    for name, words in (("epochs", "epochs"), ("batch_size", "batch size")):
        if training[name] is not None and training[name] < 1:
            raise ValueError(f"Expected 1 or more for the {words}, got {training[name]}.")
    rate = training["first_task_lr"]
    if rate is not None and not 0 < rate < math.inf:
        raise ValueError(f"Expected a first task's learning rate above 0, got {rate}.")


def find_method(name: str) -> MethodEntry:
    """The method of this name; ValueError suggests the nearest."""
    if name in BENCHMARKS:
        raise ValueError(
            f"Expected a method, got {name!r}, which is a benchmark. Name the benchmark first, then methods."
        )
    if name not in METHODS:
        raise ValueError(unknown("a method", name, METHODS))
    return METHODS[name]


def defaults_of(entry: MethodEntry) -> dict[str, SettingValue]:
    """The settings of a method that have a default."""
    parameters = inspect.signature(entry.optimizer).parameters
    settings = settings_of(entry.optimizer)
    return {name: parameters[name].default for name, setting in settings.items() if not setting.required}


def paper_row(reference: str, benchmark: Benchmark, stream: TaskStream, entry: MethodEntry) -> PaperEntry:
    """The paper's settings for a benchmark, or those of the most similar one that it has."""
    row = _row_name(reference, benchmark, stream)
    if not entry.joint:
        return paper_entry(row, entry.name)
    # The reference learns all tasks the way every method learns its first.
    paper = paper_entry(row, "sgd")
    return dataclasses.replace(paper, settings={"lr": paper.first_task_lr})


def plan_of(config: RunConfig, data_dir: Path | None) -> Plan:
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
        make_model=partial(_make_model, stream, config.model),
        make_optimizer=cast(MakeOptimizer, partial(entry.optimizer, **_arguments(config))),
        first_task_lr=None if entry.joint else first,
        epochs=config.epochs,
        batch_size=config.batch_size,
        seed=config.seed,
        precision=Precision(config.dtype),
        facts=config.as_dict(),
    )


def benchmark_of(config: RunConfig) -> Benchmark:
    """The benchmark that a configuration describes."""
    benchmark = find_benchmark(config.benchmark)
    if not isinstance(benchmark, ImageBenchmark):
        return benchmark
    changes: dict[str, Any] = {**config.benchmark_parameters, "scenario": Scenario(config.scenario)}
    return dataclasses.replace(benchmark, dataset=config.dataset, **changes)


def _make_model(stream: TaskStream, name: str, seed: int) -> Any:
    return model_for(stream, seed=seed, name=name)


def _arguments(config: RunConfig) -> dict[str, Any]:
    return dict(config.settings)


def _base(request: Request, benchmark: Benchmark, stream: TaskStream, model: str) -> RunConfig:
    """The configuration less what depends on the method."""
    parameters: dict[str, Any] = {}
    if isinstance(benchmark, ImageBenchmark):
        parameters = {name: getattr(benchmark, name) for name in settable(benchmark) if name != "scenario"}
    return RunConfig(
        benchmark=request.benchmark,
        dataset=benchmark.dataset if isinstance(benchmark, ImageBenchmark) else request.benchmark,
        scenario=stream.scenario.value,
        benchmark_parameters=parameters,
        model=model,
        method="",
        settings={},
        protocol=request.protocol,
        first_task_lr=None,
        seed=0,
        epochs=1,
        batch_size=1,
        validation=request.validation,
        dtype=Precision(request.precision).name,
    )


def _row_name(reference: str, benchmark: Benchmark, stream: TaskStream) -> str:
    if reference in paper_benchmarks():
        return reference
    kind = benchmark.kind if isinstance(benchmark, ImageBenchmark) else "split"
    classes = len({label for task in stream for label in task.classes})
    return nearest_row(kind, channels=_channels(stream), classes=classes)


def _channels(stream: TaskStream) -> int:
    return stream.input_shape[0] if len(stream.input_shape) == 3 else 1


def word(value: object) -> str:
    """A value of a TOML file as one would type it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
