"""What a heap of results is: comparisons of methods, sweeps on a held-out part, ablations of one setting.

Nothing but the configurations is needed to tell them apart, so that any folder of runs can be reported on.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import final

from fopng.lab.benchmarks.registry import listing_order
from fopng.lab.data.catalog import DATASETS, KnownDataset
from fopng.lab.runs.ablations import ABLATIONS
from fopng.lab.runs.config import RunConfig, Value, canonical_json
from fopng.lab.runs.findings import Ablation, Response, Step, rank
from fopng.lab.runs.hyperparameters import nearest_row, paper_benchmarks, paper_entry
from fopng.lab.runs.result import RunResult
from fopng.lab.sweep import Rule, respond

FEWEST_STEPS = 3
"""Values of a setting, all others kept, that make an ablation; two are a comparison."""


@final
@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Runs on test that differ in method, settings and seed alone."""

    settings: str
    """Whose they are, in words: `the paper's settings`, `settings selected on validation`, or empty for anything else."""
    results: tuple[RunResult, ...]

    @property
    def condition(self) -> str:
        """The protocol, and whose settings."""
        protocol = f"{self.results[0].config.protocol} protocol"
        return f"{protocol}, {self.settings}" if self.settings else protocol


@final
@dataclass(frozen=True, kw_only=True)
class Experiments:
    """Results, sorted out."""

    comparisons: tuple[Comparison, ...]
    responses: tuple[Response, ...]
    ablations: tuple[Ablation, ...]


PAPER_SETTINGS, SELECTED_SETTINGS = "the paper's settings", "settings selected on validation"


def sort_out(results: Iterable[RunResult], rule_of: Callable[[str], Rule] = Rule.of_paper) -> Experiments:
    """Sort results into comparisons, sweeps and ablations.

    Runs on a held-out part are sweeps; seeds that were not tried with the same settings are sweeps of their own. Three
    values or more of a setting that the paper ablates, all else kept, are an ablation; its values that are not the paper's
    are left out of the comparisons. Runs with seeds of their own, most of which have settings that a sweep chose, are a
    comparison of their own: paired over seeds they belong together.

    Args:
        results: any results.
        rule_of: how a sweep on a benchmark chooses; the paper's rule by default.
    """
    # A run that is counted twice makes intervals too narrow.
    results = {result.config.key: result for result in results}.values()
    held_out = [result for result in results if result.config.validation]
    on_test = [result for result in results if not result.config.validation]
    tried = [sweep for group in _grouped(held_out, _method_and_rest) for sweep in _sweeps(group)]
    responses = [respond(sweep, rule_of(sweep[0].config.benchmark)) for sweep in tried]
    ablations = [found for each in ABLATIONS.values() for found in ablation_of(on_test, each.setting, FEWEST_STEPS)]
    aside = {r.config.key for a in ablations for step in a.steps for r in step.results if not is_papers(r.config)}
    chosen = {_choice(response.chosen.results[0].config) for response in responses if response.chosen is not None}
    rest = [result for result in on_test if result.config.key not in aside]
    comparisons = [found for group in _grouped(rest, _rest) for found in _comparisons(group, chosen)]
    return Experiments(comparisons=tuple(comparisons), responses=tuple(responses), ablations=tuple(ablations))


def is_papers(config: RunConfig) -> bool:
    """Whether a run has the paper's settings: every one that the paper names, for this benchmark or the most similar one."""
    entry = papers_settings(config)
    return entry is not None and all(
        canonical_json(config.settings.get(n)) == canonical_json(v) for n, v in entry.items()
    )


def papers_settings(config: RunConfig) -> dict[str, Value] | None:
    """What the paper names for this method on this benchmark, or on the most similar one; None for what it does not know."""
    row = _row(config)
    try:
        return None if row is None else dict(paper_entry(row, config.method).settings)
    except ValueError:
        return None


def _row(config: RunConfig) -> str | None:
    if config.benchmark in paper_benchmarks():
        return config.benchmark
    known = DATASETS.get(config.dataset)
    if not isinstance(known, KnownDataset):
        return None
    contents = known.contents
    return nearest_row(config.benchmark.partition("-")[0], channels=contents.image[0], classes=contents.classes)


def _sweeps(results: Sequence[RunResult]) -> list[list[RunResult]]:
    """Runs of one method, sweep by sweep: a seed belongs to one that tried all its settings, and some of its own perhaps."""
    tried: dict[int, set[str]] = {}
    for result in results:
        tried.setdefault(result.config.seed, set()).add(canonical_json(result.config.settings))
    sweeps: list[list[int]] = []
    for seed in sorted(tried, key=lambda seed: (-len(tried[seed]), seed)):
        home = next((sweep for sweep in sweeps if tried[seed] <= tried[sweep[0]]), None)
        if home is None:
            sweeps.append([seed])
        else:
            home.append(seed)
    return [[result for result in results if result.config.seed in sweep] for sweep in sweeps]


def ablation_of(results: Iterable[RunResult], setting: str, fewest: int = 1) -> list[Ablation]:
    """What a setting does where it alone differs, for each benchmark, protocol and method.

    Args:
        results: runs on test.
        setting: the name of a setting.
        fewest: how many values there must be, of every seed: one that was tried with fewer is another experiment's.
    """
    having = [result for result in results if setting in result.config.settings]
    groups = _grouped(having, lambda result: f"{_method_and_rest(result)} {_without(result.config, setting)}")
    varied = [_varied(group, setting, fewest) for group in groups]
    return [_ablation(group, setting) for group in varied if group]


def _varied(results: Sequence[RunResult], setting: str, fewest: int) -> list[RunResult]:
    """The runs of those seeds that were tried with enough values."""
    values: dict[int, set[str]] = {}
    for result in results:
        values.setdefault(result.config.seed, set()).add(canonical_json(result.config.settings[setting]))
    return [result for result in results if len(values[result.config.seed]) >= fewest]


def _ablation(results: Sequence[RunResult], setting: str) -> Ablation:
    config = results[0].config
    return Ablation(
        setting=setting,
        benchmark=config.benchmark,
        protocol=config.protocol,
        method=config.method,
        paper_value=(papers_settings(config) or {}).get(setting),
        steps=tuple(_steps(results, setting)),
    )


def _steps(results: Sequence[RunResult], setting: str) -> list[Step]:
    groups = _grouped(results, lambda result: canonical_json(result.config.settings[setting]))
    steps = [Step(value=group[0].config.settings[setting], results=tuple(group)) for group in groups]
    return sorted(steps, key=lambda step: rank(step.value))


def _comparisons(results: Sequence[RunResult], chosen: set[str]) -> list[Comparison]:
    """One, or two where some seeds have settings that a sweep chose, and little else: a reference perhaps."""
    taken = {seed: [_choice(r.config) in chosen for r in results if r.config.seed == seed] for seed in _seeds(results)}
    selected = {seed for seed, found in taken.items() if 2 * sum(found) > len(found)}
    parts = [[r for r in results if r.config.seed not in selected], [r for r in results if r.config.seed in selected]]
    # What the paper has no column for, such as joint training, says nothing about whose settings these are.
    known = [result.config for result in parts[0] if papers_settings(result.config) is not None]
    words = (PAPER_SETTINGS if known and all(map(is_papers, known)) else "", SELECTED_SETTINGS)
    return [Comparison(settings=word, results=tuple(part)) for word, part in zip(words, parts, strict=True) if part]


def _seeds(results: Sequence[RunResult]) -> set[int]:
    return {result.config.seed for result in results}


def _choice(config: RunConfig) -> str:
    """A run but for its seed and for whether a part was held out."""
    return _canonical_less(config, "seed", "validation")


def _rest(result: RunResult) -> str:
    return f"{result.config.benchmark} {result.config.protocol} {_canonical_less(result.config, 'method', 'settings', 'seed')}"


def _method_and_rest(result: RunResult) -> str:
    config = result.config
    return f"{config.benchmark} {config.protocol} {config.method} {_canonical_less(config, 'settings', 'seed')}"


def _without(config: RunConfig, setting: str) -> str:
    return canonical_json({name: value for name, value in config.settings.items() if name != setting})


def _canonical_less(config: RunConfig, *left_out: str) -> str:
    return canonical_json({name: value for name, value in config.as_dict().items() if name not in left_out})


def _grouped(results: Iterable[RunResult], key: Callable[[RunResult], str]) -> list[list[RunResult]]:
    """Groups in the order of benchmarks and their keys, each in the order of methods and seeds."""

    def order(result: RunResult) -> tuple[tuple[int, str], str, str, int, str]:
        config = result.config
        return listing_order(config.benchmark), key(result), config.method, config.seed, config.key

    ordered = sorted(results, key=order)
    return [list(members) for _, members in groupby(ordered, key)]
