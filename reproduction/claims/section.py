"""The paper's claims as a section of a report's page: each sentence once, with what runs say under each condition."""

from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby

from fopng.lab.report.page import Extra
from fopng.lab.runs.result import RunResult
from reproduction.claims import judge
from reproduction.claims.finding import Evidence, Finding, Verdict

MARKS = {Verdict.HOLDS: "✓", Verdict.FAILS: "✗", Verdict.OPEN: "?"}


def sections(results: Iterable[RunResult]) -> list[Extra]:
    """The section, where there are runs that claims speak of."""
    decided = [finding for finding in judge(results) if finding.evidence]
    verdicts = [finding.verdict for finding in decided]
    counts = " · ".join(f"{verdict.value}: {verdicts.count(verdict)}" for verdict in Verdict)
    claims = [_claim(list(found)) for _, found in groupby(decided, lambda finding: finding.claim)]
    html = f'<p class="faint">{counts}. Each under every condition that there are runs for.</p>{"".join(claims)}'
    return [Extra("The paper's claims", html)] if decided else []


def _claim(findings: Sequence[Finding]) -> str:
    claim = findings[0]
    return (
        f"<h3>{escape(claim.claim)}</h3><blockquote>“{escape(claim.sentence)}” "
        f'<span class="faint">{escape(claim.place)}</span></blockquote><p class="faint">{escape(claim.reading)}</p>'
        + "".join(map(_finding, findings))
    )


def _finding(finding: Finding) -> str:
    missing = f"Runs that are not there: {', '.join(finding.missing)}." if finding.missing else ""
    heads = "".join(f"<th>{head}</th>" for head in ("estimate", "95&nbsp;% interval", "seeds", "by itself"))
    return (
        f"<details><summary>{MARKS[finding.verdict]} {finding.verdict.value}: {escape(finding.condition)}</summary>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(finding.claim)}"><table>'
        f'<thead><tr><th class="words">comparison</th>{heads}</tr></thead>'
        f"<tbody>{''.join(map(_row, finding.evidence))}</tbody></table></div>"
        f'<p class="note">{escape(missing)}</p></details>'
    )


def _row(evidence: Evidence) -> str:
    mean, low, high = map(evidence.shown, (evidence.estimate.mean, *evidence.interval()))
    cells = (mean, f"{low} to {high}" if evidence.estimate.count > 1 else "–", str(evidence.estimate.count))
    numbers = "".join(f"<td>{cell}</td>" for cell in (*cells, evidence.verdict().value))
    return f'<tr><th class="words">{escape(evidence.words)}</th>{numbers}</tr>'
