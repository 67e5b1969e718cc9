"""The paper's claims for a reader: each sentence once, with what the runs say under each condition."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from fopng.lab.report.lines import Line
from fopng.lab.report.words import NONE
from fopng.lab.runs.findings import Evidence, Finding, Unit, Verdict


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
    if math.isnan(evidence.low):
        return NONE
    return f"{amount(evidence.low, evidence.unit)} to {amount(evidence.high, evidence.unit)}"


def owners(runs: Sequence[str], of: Mapping[str, Line]) -> list[Line]:
    """The lines that these runs belong to, each once."""
    found = {of[run].key: of[run] for run in runs if run in of}
    return list(found.values())
