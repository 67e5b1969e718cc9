"""A sweep as a TOML file says it, checked as a whole before any work starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.request import configurations
from fopng.lab.runs.settings import TRAINING, find_method, method_settings, read_toml, read_value, unknown
from fopng.lab.sweep.choosing import Rule
from fopng.lab.sweep.search import GridSearch, SampledSearch, Sampling, Search
from fopng.lab.sweep.space import Choice, Stage
from fopng.optim.registry import METHODS

_WORDS = ("protocol", "dataset", "scenario", "model", "precision")
_NUMBERS = ("epochs", "batch_size", "first_task_lr")
_TABLES = ("validation", "test", "selection", "search", "benchmark", "methods")


@final
@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Settings to try for some methods on some benchmarks, how to choose among them, and the seeds to do it with."""

    name: str
    benchmarks: tuple[str, ...]
    stages: Mapping[str, tuple[Stage, ...]]
    """For each method what is tried, one stage after another."""
    validation_seeds: tuple[int, ...]
    test_seeds: tuple[int, ...] = ()
    """Fresh ones for the chosen settings; none to stop when they are chosen."""
    rule: Rule = field(default_factory=Rule)
    sampling: Sampling | None = None
    """How settings are drawn; None for all combinations of the lists."""
    protocol: str = "matched"
    dataset: str | None = None
    scenario: str | None = None
    model: str | None = None
    precision: str = "float32"
    epochs: int | None = None
    batch_size: int | None = None
    first_task_lr: float | None = None
    benchmark_settings: tuple[str, ...] = ()
    """`name=value` for settings of the benchmark."""

    def __post_init__(self) -> None:
        both = sorted({*self.validation_seeds} & {*self.test_seeds})
        if both:
            raise ValueError(f"Expected fresh seeds to test on, got {both} in validation too. Give other ones.")
        if self.sampling is not None and any(len(stages) > 1 for stages in self.stages.values()):
            raise ValueError("Expected one stage a method with a [search] table, got several. Write them as one table.")

    def only(self, benchmarks: Sequence[str], methods: Sequence[str]) -> Sweep:
        """The part for some benchmarks and methods; all where none are named."""
        for expected, names, known in (
            ("a benchmark", benchmarks, self.benchmarks),
            ("a method", methods, self.stages),
        ):
            for name in names:
                if name not in known:
                    raise ValueError(unknown(f"{expected} of the sweep", name, known))
        kept = {name: stages for name, stages in self.stages.items() if not methods or name in methods}
        return replace(self, benchmarks=tuple(benchmarks) or self.benchmarks, stages=kept)

    def typed(self) -> Sweep:
        """The same with every value in its setting's type; what does not exist is refused."""
        made = {}
        for method, stages in self.stages.items():
            known = {**TRAINING, **method_settings(find_method(method))}
            made[method] = tuple(stage.typed(known, method) for stage in stages)
        return replace(self, stages=made)

    def search(self, method: str) -> Search:
        """The search for a method's settings, from the beginning."""
        if self.sampling is not None:
            return SampledSearch(self.stages[method][0], self.sampling)
        return GridSearch(self.stages[method])

    def names(self, method: str) -> list[str]:
        """The settings of a method that are tried or fixed."""
        return sorted({name for stage in self.stages[method] for name in stage.names})

    def configurations(
        self,
        benchmark: str,
        method: str,
        choices: Sequence[Choice],
        *,
        validation: bool,
        data_dir: Path | None = None,
    ) -> list[RunConfig]:
        """The runs of these settings, on the held-out part or on test."""
        return configurations(
            benchmark=benchmark,
            methods=[method],
            seeds=self.validation_seeds if validation else self.test_seeds,
            dataset=self.dataset,
            scenario=self.scenario,
            model=self.model,
            protocol=self.protocol,
            first_task_lr=self.first_task_lr,
            epochs=self.epochs,
            batch_size=self.batch_size,
            assignments=self.benchmark_settings,
            validation=validation,
            precision=self.precision,
            data_dir=data_dir,
            choices=choices,
        )

    def size(self) -> int:
        """How many runs it is at the most; a point that two stages share is done once."""
        tried = 0
        for stages in self.stages.values():
            tried += sum(map(len, stages)) if self.sampling is None else self.sampling.trials
        runs = tried * len(self.validation_seeds) + len(self.stages) * len(self.test_seeds)
        return len(self.benchmarks) * runs


def read_sweep(path: Path) -> Sweep:
    """The sweep in a file; the first mistake is a ValueError of one line that names the file."""
    members = read_toml(path, "a sweep")
    try:
        return parse_sweep(members, path.stem)
    except ValueError as error:
        raise ValueError(f"In {path}: {error}") from error


def parse_sweep(members: Mapping[str, Any], name: str) -> Sweep:
    """The sweep that the members of a file describe.

    Args:
        members: what TOML gives.
        name: what the sweep is called.
    """
    _check_names(members, ["benchmarks", *_WORDS, *_NUMBERS, *_TABLES], "the file")
    validation, test = (_table(members, table, ["seeds"]) for table in ("validation", "test"))
    words: dict[str, Any] = {name: _text(members, name) for name in _WORDS if name in members}
    words |= {name: read_value(TRAINING[name], members[name]) for name in _NUMBERS if name in members}
    return Sweep(
        name=name,
        benchmarks=_benchmarks(members),
        stages=_stages(_table(members, "methods", None)),
        validation_seeds=_seeds(validation, "validation"),
        test_seeds=_seeds(test, "test") if test else (),
        rule=Rule(first_task_at_least=_number(_table(members, "selection", ["first_task_at_least"]))),
        sampling=_sampling(_table(members, "search", ["sampler", "trials", "at_once", "seed"])),
        benchmark_settings=tuple(f"{n}={_word(v)}" for n, v in _table(members, "benchmark", None).items()),
        **words,
    )


def _benchmarks(members: Mapping[str, Any]) -> tuple[str, ...]:
    written = members.get("benchmarks")
    if not isinstance(written, list) or not written or not all(isinstance(name, str) for name in written):
        raise ValueError(f'Expected a list of benchmarks, such as benchmarks = ["split-mnist"], got {written!r}.')
    if len(set(written)) < len(written):
        raise ValueError(f"Expected each benchmark once, got {written}.")
    return tuple(written)


def _stages(methods: Mapping[str, Any]) -> dict[str, tuple[Stage, ...]]:
    if not methods:
        raise ValueError(f"Expected a [methods.NAME] table at least, got none. Methods are {', '.join(METHODS)}.")
    found = {}
    for method, written in methods.items():
        tables = written if isinstance(written, list) else [written]
        if not all(isinstance(table, Mapping) for table in tables):
            raise ValueError(f"Expected a table [methods.{method}], got {written!r}.")
        found[method] = tuple(Stage.read(table, f"[methods.{method}]") for table in tables)
    return found


def _seeds(table: Mapping[str, Any], name: str) -> tuple[int, ...]:
    seeds = table.get("seeds")
    right = isinstance(seeds, list) and seeds and all(type(seed) is int and seed >= 0 for seed in seeds)
    if not right or len(set(seeds)) < len(seeds):  # type: ignore[arg-type]
        raise ValueError(f"Expected seeds in [{name}], such as seeds = [100, 101], each once, got {seeds!r}.")
    return tuple(seeds)  # type: ignore[arg-type]


def _sampling(table: Mapping[str, Any]) -> Sampling | None:
    if not table:
        return None
    if type(table.get("trials")) is not int or any(type(table.get(name, 0)) is not int for name in ("at_once", "seed")):
        raise ValueError(f"Expected whole numbers for trials, at_once and seed in [search], got {dict(table)!r}.")
    return Sampling(**table)


def _number(table: Mapping[str, Any]) -> float:
    written = table.get("first_task_at_least", 0.0)
    if isinstance(written, bool) or not isinstance(written, int | float):
        raise ValueError(f"Expected a number for first_task_at_least, got {written!r}.")
    return float(written)


def _table(members: Mapping[str, Any], name: str, known: Sequence[str] | None) -> Mapping[str, Any]:
    table = members.get(name, {})
    if not isinstance(table, Mapping):
        raise ValueError(f"Expected a table [{name}], got {table!r}.")
    if known is not None:
        _check_names(table, known, f"[{name}]")
    return table


def _check_names(table: Mapping[str, Any], known: Sequence[str], place: str) -> None:
    for name in table:
        if name not in known:
            raise ValueError(unknown(f"a name of {place}", name, known))


def _text(members: Mapping[str, Any], name: str) -> str:
    if not isinstance(members[name], str):
        raise ValueError(f"Expected a text for {name}, got {members[name]!r}.")
    return str(members[name])


def _word(value: object) -> str:
    """A value as one would type it."""
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
