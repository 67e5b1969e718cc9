"""What became of a claim, as values."""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple, final

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

    def shown(self, value: float) -> str:
        """A value of this kind: percentage points, or a factor."""
        return f"{100 * value:.2f}" if self.unit == "points" else f"{value:.2f} times"

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
