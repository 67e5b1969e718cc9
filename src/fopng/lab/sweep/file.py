"""A sweep's TOML file, checked as a whole before any work starts, and the file of the settings that it chose."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

from fopng.lab.choices import PrecisionName, ProtocolName
from fopng.lab.runs.config import RunConfig, Value
from fopng.lab.runs.findings import Response
from fopng.lab.runs.request import configurations
from fopng.lab.runs.settings import (
    NOTHING,
    TRAINING,
    find_method,
    method_settings,
    read_settings,
    read_toml,
    unknown,
)
from fopng.lab.sweep.choosing import Rule
from fopng.lab.sweep.search import GridSearch, SampledSearch, Sampling, Search
from fopng.lab.sweep.space import Choice, Stage
from fopng.optim.registry import METHODS
from fopng.optim.settings import Range, SettingInfo, settings_of

WORDS = {
    "dataset": SettingInfo("dataset", str, None, None, "another one than the benchmark's."),
    "scenario": SettingInfo("scenario", str, None, None, "another one than the benchmark's."),
    "model": SettingInfo("model", str, None, None, "another one than the paper's."),
    "protocol": SettingInfo("protocol", ProtocolName, "matched", None, "what the first task is learnt with."),
    "precision": SettingInfo("precision", PrecisionName, "float32", None, "of the numbers."),
}
"""What a file says at its top level for all runs, beside `TRAINING`: arguments of `configurations`."""

SEEDS = SettingInfo(
    "seeds",
    tuple[int, ...],
    (),
    Range(
        "of 0 or more, each once and one at least", lambda seeds: 0 < len(seeds) == len({*seeds}) and min(seeds) >= 0
    ),
    "the seeds.",
)


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
    shared: Mapping[str, Any] = field(default_factory=dict)
    """What is said for all runs: arguments of `configurations`, by their names."""
    benchmark_settings: Mapping[str, object] = field(default_factory=dict)

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

    def search(self, method: str) -> Search:
        """The search for a method's settings, from the beginning."""
        if self.sampling is not None:
            return SampledSearch(self.stages[method][0], self.sampling)
        return GridSearch(self.stages[method])

    def names(self, method: str) -> list[str]:
        """The settings of a method that are tried or fixed."""
        return sorted({name for stage in self.stages[method] for name in stage.names})

    def configurations(
        self, benchmark: str, method: str, choices: Sequence[Choice], *, validation: bool, data_dir: Path | None = None
    ) -> list[RunConfig]:
        """The runs of these settings, on the held-out part or on test."""
        return configurations(
            benchmark=benchmark,
            methods=[method],
            seeds=self.validation_seeds if validation else self.test_seeds,
            assignments=[f"{name}={_word(value)}" for name, value in self.benchmark_settings.items()],
            validation=validation,
            data_dir=data_dir,
            choices=choices,
            **self.shared,
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
    top = dict(members)
    tables = ("validation", "test", "selection", "search", "benchmark", "methods")
    validation, test, selection, search, benchmark, methods = (_table(top.pop(table, {}), table) for table in tables)
    rule: dict[str, Any] = read_settings(selection, settings_of(Rule), "[selection]")
    sampling: dict[str, Any] = read_settings(search, settings_of(Sampling), "[search]")
    if search and "trials" not in sampling:
        raise ValueError("Expected trials in [search], such as trials = 50, got none.")
    return Sweep(
        name=name,
        benchmarks=_benchmarks(top.pop("benchmarks", None)),
        stages=_stages(methods),
        validation_seeds=_seeds(validation, "[validation]"),
        test_seeds=_seeds(test, "[test]") if test else (),
        rule=Rule(**rule),
        sampling=Sampling(**sampling) if search else None,
        shared=read_settings(top, {**WORDS, **TRAINING}, "the file"),
        benchmark_settings=benchmark,
    )


def chosen_toml(sweep: Sweep, benchmark: str, responses: Sequence[Response]) -> str:
    """The settings that a sweep chose on one benchmark, a table for each method, with the command that uses them."""
    options = [f"--{name} {value}" for name, value in sweep.shared.items() if name in WORDS]
    command = " ".join(["fopng run", benchmark, "METHOD --settings THIS_FILE --seeds 5", *options])
    protocol, seeds = sweep.shared.get("protocol", "matched"), ", ".join(map(str, sweep.validation_seeds))
    lines = [f"# Chosen on validation by the sweep {sweep.name} (seeds {seeds}), {protocol} protocol.", f"# {command}"]
    training = {name: value for name, value in sweep.shared.items() if name in TRAINING}
    lines += ["", *_members(training)] if training else []
    lines += ["", "[benchmark]", *_members(sweep.benchmark_settings)] if sweep.benchmark_settings else []
    for response in (each for each in responses if each.benchmark == benchmark):
        lines += ["", *_chosen_table(sweep, response)]
    return "\n".join(lines) + "\n"


def _chosen_table(sweep: Sweep, response: Response) -> list[str]:
    if response.chosen is None:
        return [f"# {response.method}: {' '.join(response.notes)}"]
    settings = {name: response.chosen.settings[name] for name in sweep.names(response.method)}
    found = f"# {100 * response.chosen.accuracy.mean:.2f} % on validation"
    return [f"[{response.method}]  {found}", *_members(settings)]


def _members(values: Mapping[str, Value] | Mapping[str, object]) -> list[str]:
    """Lines of TOML; JSON's texts, numbers and truth values are TOML's too."""
    return [
        f"{name} = {json.dumps(NOTHING[0] if value is None else value, ensure_ascii=False)}"
        for name, value in values.items()
    ]


def _benchmarks(written: object) -> tuple[str, ...]:
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
        known, place = {**TRAINING, **method_settings(find_method(method))}, f"methods.{method}"
        tables = written if isinstance(written, list) else [written]
        found[method] = tuple(Stage.read(_table(table, place), known, f"[{place}]") for table in tables)
    return found


def _seeds(table: Mapping[str, Any], place: str) -> tuple[int, ...]:
    seeds: dict[str, Any] = {"seeds": (), **read_settings(table, {"seeds": SEEDS}, place)}
    if not seeds["seeds"]:
        raise ValueError(f"Expected seeds in {place}, such as seeds = [100, 101], got none.")
    return tuple(seeds["seeds"])


def _table(written: object, name: str) -> Mapping[str, Any]:
    if not isinstance(written, Mapping):
        raise ValueError(f"Expected a table [{name}], got {written!r}.")
    return written


def _word(value: object) -> str:
    """A value as one would type it."""
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
