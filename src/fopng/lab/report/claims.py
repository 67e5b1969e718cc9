"""What became of a claim, as values that a page can show: each sentence once, with what runs say under each condition."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple, final

from fopng.lab.report.lines import Line
from fopng.lab.report.words import NONE
from fopng.lab.runs.findings import estimate_as_dict, number_or_none
from fopng.lab.runs.scores import Estimate

Unit = Literal["points", "times"]
"""Of a difference or a ratio: accuracies in fractions of 1 that are shown as percentage points, or a plain factor."""


class Verdict(StrEnum):
    """What became of a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    OPEN = "not decided by these runs"


CONFIDENCE = 0.95


class Region(NamedTuple):
    """Where a number must lie, strictly between, for a claim to hold."""

    above: float = -math.inf
    below: float = math.inf


@final
@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One number behind a verdict: a difference or a ratio, paired over seeds, and the region where it must lie."""

    words: str
    """What was compared with what, and where."""
    estimate: Estimate
    region: Region
    runs: tuple[str, ...]
    """Their keys."""
    unit: Unit = "points"

    def interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
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

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "words": self.words,
            "estimate": estimate_as_dict(self.estimate),
            "interval": [number_or_none(end) for end in self.interval()],
            "confidence": CONFIDENCE,
            "unit": self.unit,
            "verdict": self.verdict().value,
            "runs": list(self.runs),
        }


@final
@dataclass(frozen=True, kw_only=True)
class Finding:
    """A sentence of the paper, and what the runs say about it."""

    claim: str
    """A short name."""
    sentence: str
    """As the paper has it."""
    place: str
    """Where it stands there."""
    reading: str
    """What was taken to be the question, in words that can be checked."""
    condition: str
    """Under which protocol, and with whose settings, the runs were made."""
    verdict: Verdict
    evidence: tuple[Evidence, ...]
    missing: tuple[str, ...] = ()
    """Which runs would be needed and are not there, in words."""

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "claim": self.claim,
            "sentence": self.sentence,
            "place": self.place,
            "reading": self.reading,
            "condition": self.condition,
            "verdict": self.verdict.value,
            "evidence": [evidence.as_dict() for evidence in self.evidence],
            "missing": list(self.missing),
        }


@final
@dataclass(frozen=True)
class Judged:
    """A claim, and its findings under every condition that has runs for it."""

    findings: tuple[Finding, ...]
    """Of one claim; one at least."""

    @property
    def claim(self) -> Finding:
        """For its words, which are the same in all of them."""
        return self.findings[0]

    @property
    def decided(self) -> list[Finding]:
        """Those that rest on runs."""
        return [finding for finding in self.findings if finding.evidence]


def judged(findings: Iterable[Finding]) -> list[Judged]:
    """The findings claim by claim, in the order of the claims."""
    found: dict[str, list[Finding]] = {}
    for finding in findings:
        found.setdefault(finding.claim, []).append(finding)
    return [Judged(tuple(members)) for members in found.values()]


def counts(claims: Iterable[Judged]) -> list[tuple[Verdict, int]]:
    """How often each verdict was given, by runs."""
    verdicts = [finding.verdict for claim in claims for finding in claim.decided]
    return [(verdict, verdicts.count(verdict)) for verdict in Verdict]


def amount(value: float, unit: Unit) -> str:
    """A number behind a verdict: percentage points of accuracy, or a factor.

    >>> amount(0.0123, "points"), amount(1.5, "times")
    ('+1.23', '1.50 ×')
    """
    if math.isnan(value):
        return NONE
    return f"{100 * value:+.2f}" if unit == "points" else f"{value:.2f} ×"


def interval(evidence: Evidence) -> str:
    """The interval that a verdict rests on; a dash where one seed gives none."""
    low, high = evidence.interval()
    return NONE if math.isnan(low) else f"{amount(low, evidence.unit)} to {amount(high, evidence.unit)}"


def owners(runs: Sequence[str], of: Mapping[str, Line]) -> list[Line]:
    """The lines that these runs belong to, each once."""
    found = {of[run].key: of[run] for run in runs if run in of}
    return list(found.values())
