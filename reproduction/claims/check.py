"""From numbers to a verdict: an interval over seeds against the region that a claim names."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from fopng.lab.report.claims import Evidence, Unit, Verdict
from fopng.lab.runs.result import RunResult
from fopng.lab.runs.scores import Estimate, paired_difference

CONFIDENCE = 0.95

BySeed = Mapping[int, float | None]


@final
@dataclass(frozen=True, kw_only=True)
class Region:
    """Where a number must lie, strictly between, for a claim to hold."""

    above: float = -math.inf
    below: float = math.inf


POSITIVE = Region(above=0.0)


def within(margin: float) -> Region:
    """No further than so much from nothing."""
    return Region(above=-margin, below=margin)


@final
@dataclass(frozen=True, kw_only=True)
class Check:
    """One comparison: an estimate over seeds, and the region where it must lie."""

    words: str
    estimate: Estimate
    region: Region
    runs: tuple[str, ...]
    unit: Unit = "points"

    def interval(self, confidence: float) -> tuple[float, float]:
        """Student's t interval of the mean; NaN where there are fewer than two seeds."""
        half = self.estimate.half_width(confidence)
        return self.estimate.mean - half, self.estimate.mean + half

    def verdict(self, confidence: float = CONFIDENCE) -> Verdict:
        """It holds where the whole interval is inside the region, and does not where the whole interval is outside."""
        low, high = self.interval(confidence)
        if math.isnan(low):
            return Verdict.OPEN
        if self.region.above < low and high < self.region.below:
            return Verdict.HOLDS
        return Verdict.FAILS if high < self.region.above or low > self.region.below else Verdict.OPEN

    def evidence(self) -> Evidence:
        """For those who read the verdict."""
        low, high = self.interval(CONFIDENCE)
        return Evidence(
            words=self.words,
            estimate=self.estimate,
            low=low,
            high=high,
            confidence=CONFIDENCE,
            unit=self.unit,
            verdict=self.verdict(),
            runs=self.runs,
        )


def all_of(checks: Sequence[Check], *, complete: bool) -> Verdict:
    """Whether every check holds. It fails when one does, at a level that allows for how many were looked at (Bonferroni).

    Args:
        checks: the comparisons.
        complete: whether they are all that the claim speaks of; what is missing leaves it open.
    """
    strict = 1 - (1 - CONFIDENCE) / max(1, len(checks))
    if any(check.verdict(strict) is Verdict.FAILS for check in checks):
        return Verdict.FAILS
    holds = checks and complete and all(check.verdict() is Verdict.HOLDS for check in checks)
    return Verdict.HOLDS if holds else Verdict.OPEN


def most_of(verdicts: Sequence[Verdict], *, of: int) -> Verdict:
    """Whether more than half hold.

    Args:
        verdicts: of those that there are runs for.
        of: how many there are in all.
    """
    if 2 * verdicts.count(Verdict.HOLDS) > of:
        return Verdict.HOLDS
    return Verdict.FAILS if 2 * verdicts.count(Verdict.FAILS) >= of else Verdict.OPEN


def compare(
    words: str,
    first: tuple[BySeed, Sequence[RunResult]],
    second: tuple[BySeed, Sequence[RunResult]],
    region: Region,
) -> Check:
    """The first less the second, seed by seed.

    Args:
        words: what is compared with what.
        first: a number for each seed, and the runs that it comes from.
        second: likewise.
        region: where the difference must lie.
    """
    runs = tuple(result.config.key for result in (*first[1], *second[1]))
    return Check(words=words, estimate=paired_difference(first[0], second[0]), region=region, runs=runs)
