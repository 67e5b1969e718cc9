"""The paper's claims as data: each sentence that runs can decide, and what they say."""

from collections.abc import Iterable

from fopng.lab.runs.result import RunResult
from reproduction.claims.claim import Claim
from reproduction.claims.comparisons import COMPARISON_CLAIMS
from reproduction.claims.conditions import Condition, conditions_of
from reproduction.claims.finding import Finding
from reproduction.claims.settings import SETTING_CLAIMS

CLAIMS: tuple[Claim, ...] = (*COMPARISON_CLAIMS, *SETTING_CLAIMS)

NO_RUNS = "no runs"


def judge(results: Iterable[RunResult]) -> list[Finding]:
    """What runs say about each claim, once for each condition that has runs for it; claims without any are left open.

    Args:
        results: any results; those that no claim speaks of are passed over.
    """
    conditions = conditions_of(results)
    found: list[Finding] = []
    for claim in CLAIMS:
        findings = [claim.finding(condition) for condition in conditions]
        found += [f for f in findings if f.evidence] or [claim.finding(Condition(name=NO_RUNS))]
    return found


__all__ = ["CLAIMS", "NO_RUNS", "Claim", "judge"]
