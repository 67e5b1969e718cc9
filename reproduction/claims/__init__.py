"""The paper's claims as data: each sentence that runs can decide, and what they say."""

from collections.abc import Callable, Iterable

from fopng.lab.analysis.experiments import sort_out
from fopng.lab.report.claims import Finding
from fopng.lab.runs.result import RunResult
from fopng.lab.sweep import Rule
from reproduction.claims.claim import Claim
from reproduction.claims.comparisons import COMPARISON_CLAIMS
from reproduction.claims.runs import ClaimRuns, gather
from reproduction.claims.settings import SETTING_CLAIMS

CLAIMS: tuple[Claim, ...] = (*COMPARISON_CLAIMS, *SETTING_CLAIMS)

NO_RUNS = "no runs"


def judge(results: Iterable[RunResult], rule_of: Callable[[str], Rule] = Rule.of_paper) -> list[Finding]:
    """What runs say about each claim, once for each condition that has runs for it; claims without any are left open.

    Args:
        results: any results; those that no claim speaks of are passed over.
        rule_of: how a sweep on a benchmark chooses.
    """
    conditions = gather(sort_out(results, rule_of))
    found: list[Finding] = []
    for claim in CLAIMS:
        findings = [claim.finding(runs) for runs in conditions]
        spoken = [finding for finding in findings if finding.evidence]
        found += spoken or [claim.finding(ClaimRuns(condition=NO_RUNS))]
    return found


__all__ = ["CLAIMS", "NO_RUNS", "Claim", "judge"]
