"""A claim: a sentence of the paper, how it is read, and how runs decide it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import final

from fopng.lab.report.claims import Finding, Verdict
from fopng.lab.runs.findings import final_by_seed
from reproduction.claims.check import Check, Region, all_of, compare
from reproduction.claims.runs import ClaimRuns, Score


@final
@dataclass(frozen=True)
class Judged:
    """What a claim's runs say."""

    verdict: Verdict
    checks: Sequence[Check]
    missing: Sequence[str]
    """Which runs it would need and has not, in words."""


@final
@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of the paper that runs can decide."""

    name: str
    sentence: str
    place: str
    reading: str
    """What is taken to be the question; where the paper gives no number, the number that was put in its place."""
    judge: Callable[[ClaimRuns], Judged]

    def finding(self, runs: ClaimRuns) -> Finding:
        """What these runs say about it."""
        judged = self.judge(runs)
        return Finding(
            claim=self.name,
            sentence=self.sentence,
            place=self.place,
            reading=self.reading,
            condition=runs.condition,
            verdict=judged.verdict,
            evidence=tuple(check.evidence() for check in judged.checks),
            missing=tuple(judged.missing),
        )


Pair = tuple[str, str, str]
"""A benchmark and two methods on it."""


def pairs_judged(
    runs: ClaimRuns,
    pairs: Iterable[Pair],
    region: Region,
    *,
    score: Score = final_by_seed,
    what: str = "final accuracy",
) -> Judged:
    """Whether the difference of every pair lies in the region."""
    checks, missing = checked(runs, pairs, region, score=score, what=what)
    return Judged(all_of(checks, complete=not missing), checks, missing)


def checked(
    runs: ClaimRuns,
    pairs: Iterable[Pair],
    region: Region,
    *,
    score: Score = final_by_seed,
    what: str = "final accuracy",
) -> tuple[list[Check], list[str]]:
    """The comparison of every pair that was run, and the names of what was not."""
    checks: list[Check] = []
    missing: list[str] = []
    for benchmark, first, second in pairs:
        there = {method: runs.find(benchmark, method, score) for method in (first, second)}
        absent = [f"{benchmark} {method}" for method, found in there.items() if found is None]
        missing += [name for name in absent if name not in missing]
        one, other = there[first], there[second]
        if one is not None and other is not None:
            checks.append(compare(f"{benchmark}: {what} of {first} less that of {second}", one, other, region))
    return checks, missing
