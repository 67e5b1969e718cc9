"""A claim: a sentence of the paper, how it is read, and the comparisons of runs that decide it."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from fopng.lab.runs.findings import final_by_seed
from fopng.lab.runs.result import RunResult
from fopng.lab.runs.scores import paired_difference
from reproduction.claims.conditions import Condition
from reproduction.claims.finding import CONFIDENCE, Evidence, Finding, Region, Verdict

BySeed = Mapping[int, float | None]
Score = Callable[[Sequence[RunResult]], BySeed]
Checks = Callable[[Condition, str], Iterator[Evidence | str]]
"""The evidence from the runs on one benchmark; in place of what cannot be compared, which runs are missing, in words."""

POSITIVE = Region(above=0.0)


def within(margin: float) -> Region:
    """No further than so much from nothing."""
    return Region(-margin, margin)


@final
@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of the paper that runs can decide."""

    name: str
    sentence: str
    place: str
    reading: str
    """What is taken to be the question; where the paper gives no number, the number that was put in its place."""
    benchmarks: Sequence[str]
    checks: Checks
    most: bool = False
    """Whether it must hold on more than half of the benchmarks, instead of on all."""

    def finding(self, condition: Condition) -> Finding:
        """What these runs say about it."""
        parts = [list(self.checks(condition, benchmark)) for benchmark in self.benchmarks]
        found = [each for part in parts for each in part]
        return Finding(
            claim=self.name,
            sentence=self.sentence,
            place=self.place,
            reading=self.reading,
            condition=condition.name,
            verdict=most_of([all_of(part) for part in parts]) if self.most else all_of(found),
            evidence=tuple(each for each in found if isinstance(each, Evidence)),
            missing=tuple(dict.fromkeys(each for each in found if isinstance(each, str))),
        )


def all_of(found: Sequence[Evidence | str]) -> Verdict:
    """Whether all evidence holds, with nothing missing.

    It fails when one number does, at a level that allows for how many were looked at (Bonferroni).
    """
    evidence = [each for each in found if isinstance(each, Evidence)]
    strict = 1 - (1 - CONFIDENCE) / max(1, len(evidence))
    if any(each.verdict(strict) is Verdict.FAILS for each in evidence):
        return Verdict.FAILS
    complete = len(evidence) == len(found) > 0
    return Verdict.HOLDS if complete and all(e.verdict() is Verdict.HOLDS for e in evidence) else Verdict.OPEN


def most_of(verdicts: Sequence[Verdict]) -> Verdict:
    """Whether more than half hold."""
    if 2 * verdicts.count(Verdict.HOLDS) > len(verdicts):
        return Verdict.HOLDS
    return Verdict.FAILS if 2 * verdicts.count(Verdict.FAILS) >= len(verdicts) else Verdict.OPEN


def compare(
    words: str, first: Sequence[RunResult], second: Sequence[RunResult], score: Score, region: Region = POSITIVE
) -> Evidence:
    """A score of the first runs less that of the second, seed by seed."""
    difference = paired_difference(score(first), score(second))
    return Evidence(words=words, estimate=difference, region=region, runs=keys_of(first, second))


def pairs(
    firsts: Sequence[str],
    seconds: Sequence[str],
    region: Region = POSITIVE,
    *,
    score: Score = final_by_seed,
    what: str = "final accuracy",
) -> Checks:
    """Each of these methods against each of those, on one benchmark."""

    def checks(condition: Condition, benchmark: str) -> Iterator[Evidence | str]:
        for first, second in ((a, b) for a in firsts for b in seconds):
            runs, others = condition.of(benchmark, first), condition.of(benchmark, second)
            if runs and others:
                yield compare(f"{benchmark}: {what} of {first} less that of {second}", runs, others, score, region)
            else:
                yield from (f"{benchmark} {name}" for name, some in ((first, runs), (second, others)) if not some)

    return checks


def forgetting_by_seed(results: Sequence[RunResult]) -> BySeed:
    """The mean fall of each task from its best."""
    return {r.config.seed: None if math.isnan(r.forgetting) else r.forgetting for r in results}


def keys_of(*groups: Sequence[RunResult]) -> tuple[str, ...]:
    """The keys of all these runs."""
    return tuple(result.config.key for results in groups for result in results)
