"""Doing a sweep: round after round on the held-out part, then the chosen settings on test."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import isnan
from pathlib import Path
from typing import final

from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.findings import Response
from fopng.lab.runs.result import RunResult
from fopng.lab.sweep.choosing import respond
from fopng.lab.sweep.file import Sweep
from fopng.lab.sweep.search import Search

Do = Callable[[Sequence[RunConfig], str], Sequence[RunResult]]
"""Does the runs of an experiment, and gives the results of those that did not fail."""


@final
@dataclass(frozen=True, kw_only=True)
class SweepOutcome:
    """What a sweep found."""

    sweep: Sweep
    responses: tuple[Response, ...]
    results: tuple[RunResult, ...]
    """On test, of the chosen settings."""
    failed: tuple[RunConfig, ...]
    """Runs that were asked for and have no result."""

    def as_dict(self) -> dict[str, object]:
        """For JSON: the responses with every point, the runs on test by their keys."""
        return {
            "name": self.sweep.name,
            "first_task_at_least": self.sweep.rule.first_task_at_least,
            "validation_seeds": list(self.sweep.validation_seeds),
            "test_seeds": list(self.sweep.test_seeds),
            "responses": [response.as_dict() for response in self.responses],
            "test": [
                {
                    "benchmark": result.config.benchmark,
                    "method": result.config.method,
                    "seed": result.config.seed,
                    "key": result.config.key,
                    "final_accuracy": None if isnan(result.final_accuracy) else result.final_accuracy,
                    "status": result.status,
                }
                for result in self.results
            ],
            "failed": [config.key for config in self.failed],
        }


@final
@dataclass(frozen=True, kw_only=True)
class Foreseen:
    """What a sweep would do, as far as that can be known: which rounds come later depends on what earlier ones find."""

    there: tuple[RunConfig, ...]
    """Runs that are finished already."""
    missing: tuple[RunConfig, ...]
    """The rest of the round at hand; none when the sweep is over."""
    at_most: int
    """All runs of the sweep together."""


@final
@dataclass
class _Searched:
    """One method on one benchmark, while it is searched."""

    benchmark: str
    method: str
    search: Search
    results: dict[str, RunResult] = field(default_factory=dict)
    response: Response | None = None


Done = Mapping[str, RunResult]
"""The results of a round, by key; runs that failed have none."""

Rounds = Generator[tuple[str, list[RunConfig]], Done, SweepOutcome]
"""Yields the experiment and the runs of each round, is sent their results, and returns what was found."""


def conduct(sweep: Sweep, do: Do, data_dir: Path | None = None) -> SweepOutcome:
    """Do a sweep.

    Args:
        sweep: what to try.
        do: does the runs of an experiment; those that are finished already it only looks up.
        data_dir: where to look for datasets first.
    """
    rounds = _rounds(sweep, data_dir)
    try:
        experiment, configs = next(rounds)
        while True:
            done = {result.config.key: result for result in do(configs, experiment)}
            experiment, configs = rounds.send(done)
    except StopIteration as end:
        outcome: SweepOutcome = end.value
        return outcome


def foresee(sweep: Sweep, find: Callable[[RunConfig], RunResult | None], data_dir: Path | None = None) -> Foreseen:
    """Go through a sweep as far as its runs are there, and do nothing.

    Args:
        sweep: what would be tried.
        find: the result of a run, when it is finished.
        data_dir: where to look for datasets first.
    """
    rounds, there, missing = _rounds(sweep, data_dir), list[RunConfig](), list[RunConfig]()
    with suppress(StopIteration):
        _, configs = next(rounds)
        while not missing:
            found = {config.key: result for config in configs if (result := find(config)) is not None}
            there += [config for config in configs if config.key in found]
            missing += [config for config in configs if config.key not in found]
            if not missing:
                _, configs = rounds.send(found)
    return Foreseen(there=tuple(there), missing=tuple(missing), at_most=sweep.size())


def _rounds(sweep: Sweep, data_dir: Path | None) -> Rounds:
    """All methods and benchmarks of a round together, so that like runs can be done as a group; at last those on test."""
    searched = [_Searched(b, m, sweep.search(m)) for b in sweep.benchmarks for m in sweep.stages]
    failed: list[RunConfig] = []
    while asked := [(one, choices) for one in searched if (choices := one.search.ask(one.response))]:
        configs = [
            sweep.configurations(one.benchmark, one.method, choices, validation=True, data_dir=data_dir)
            for one, choices in asked
        ]
        done = yield f"sweep/{sweep.name}", _once(configs)
        for (one, _), wanted in zip(asked, configs, strict=True):
            one.results |= {config.key: done[config.key] for config in wanted if config.key in done}
            failed += [config for config in _once([wanted]) if config.key not in done]
            if one.results:
                one.response = respond(list(one.results.values()), sweep.rule, sweep.names(one.method))
        searched = [one for one in searched if one.results]
    chosen = _once([_on_test(sweep, one, data_dir) for one in searched])
    done = (yield f"chosen/{sweep.name}", chosen) if chosen else {}
    return SweepOutcome(
        sweep=sweep,
        responses=tuple(one.response for one in searched if one.response is not None),
        results=tuple(done[config.key] for config in chosen if config.key in done),
        failed=(*failed, *(config for config in chosen if config.key not in done)),
    )


def _once(configs: Iterable[Iterable[RunConfig]]) -> list[RunConfig]:
    return list({config.key: config for some in configs for config in some}.values())


def _on_test(sweep: Sweep, one: _Searched, data_dir: Path | None) -> list[RunConfig]:
    if not sweep.test_seeds or one.response is None or one.response.chosen is None:
        return []
    choice = {name: one.response.chosen.settings[name] for name in sweep.names(one.method)}
    return sweep.configurations(one.benchmark, one.method, [choice], validation=False, data_dir=data_dir)
