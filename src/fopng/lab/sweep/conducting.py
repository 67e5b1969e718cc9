"""Doing a sweep: round after round on the held-out part, then the chosen settings on test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from fopng.lab.sweep.space import Choice

Do = Callable[[Sequence[RunConfig]], Sequence[RunResult]]
"""Does runs, and gives the results of those that did not fail."""


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


def conduct(sweep: Sweep, do: Do, data_dir: Path | None = None) -> SweepOutcome:
    """Do a sweep: all methods and benchmarks of a round together, so that what is alike can stand side by side.

    Args:
        sweep: what to try.
        do: does runs; those that are finished already it only looks up.
        data_dir: where to look for datasets first.
    """
    sweep = sweep.typed()
    searched = [_Searched(b, m, sweep.search(m)) for b in sweep.benchmarks for m in sweep.stages]
    failed: list[RunConfig] = []
    while asked := [(one, choices) for one in searched if (choices := one.search.ask(one.response))]:
        configs = [_configs(sweep, one, choices, data_dir) for one, choices in asked]
        done = _do_each_once(do, [config for some in configs for config in some])
        for (one, _), wanted in zip(asked, configs, strict=True):
            one.results |= {config.key: done[config.key] for config in wanted if config.key in done}
            failed += [config for config in wanted if config.key not in done]
            if one.results:
                one.response = respond(list(one.results.values()), sweep.rule, sweep.names(one.method))
        searched = [one for one in searched if one.results]
    chosen = [config for one in searched for config in _on_test(sweep, one, data_dir)]
    done = _do_each_once(do, chosen) if chosen else {}
    return SweepOutcome(
        sweep=sweep,
        responses=tuple(one.response for one in searched if one.response is not None),
        results=tuple(done[config.key] for config in chosen if config.key in done),
        failed=(*failed, *(config for config in chosen if config.key not in done)),
    )


def foresee(sweep: Sweep, find: Callable[[RunConfig], RunResult | None], data_dir: Path | None = None) -> Foreseen:
    """Go through a sweep as far as its runs are there, and do nothing.

    Args:
        sweep: what would be tried.
        find: the result of a run, when it is finished.
        data_dir: where to look for datasets first.
    """
    there: list[RunConfig] = []
    missing: list[RunConfig] = []

    def look(configs: Sequence[RunConfig]) -> list[RunResult]:
        found = {config.key: find(config) for config in configs}
        there.extend(config for config in configs if found[config.key] is not None)
        missing.extend(config for config in configs if found[config.key] is None)
        if missing:
            raise _RoundAtHand
        return [result for result in found.values() if result is not None]

    with suppress(_RoundAtHand):
        conduct(sweep, look, data_dir)
    return Foreseen(there=tuple(there), missing=tuple(missing), at_most=sweep.size())


class _RoundAtHand(Exception):
    """Some runs of this round are not there: what comes after cannot be foreseen."""


def _configs(sweep: Sweep, one: _Searched, choices: Sequence[Choice], data_dir: Path | None) -> list[RunConfig]:
    asked = sweep.configurations(one.benchmark, one.method, choices, validation=True, data_dir=data_dir)
    return list({config.key: config for config in asked}.values())


def _on_test(sweep: Sweep, one: _Searched, data_dir: Path | None) -> list[RunConfig]:
    if not sweep.test_seeds or one.response is None or one.response.chosen is None:
        return []
    choice = {name: one.response.chosen.settings[name] for name in sweep.names(one.method)}
    return sweep.configurations(one.benchmark, one.method, [choice], validation=False, data_dir=data_dir)


def _do_each_once(do: Do, configs: Sequence[RunConfig]) -> dict[str, RunResult]:
    once = {config.key: config for config in configs}
    return {result.config.key: result for result in do(list(once.values()))}
