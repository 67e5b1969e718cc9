"""`fopng claims`: what runs say about the paper's sentences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fopng.cli.options import JsonOption
from fopng.cli.output import show_json

if TYPE_CHECKING:
    from fopng.findings import Evidence, Finding


def claims(
    places: Annotated[
        list[Path] | None, typer.Argument(help="Folders of runs, or of exported results; runs when left out.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Judge each sentence of the paper that runs can decide: the verdict, and the numbers behind it."""
    from fopng.claims import judge
    from fopng.store import load_results

    results = load_results(places or [Path("runs")], damaged=lambda error: typer.echo(f"fopng: {error}", err=True))
    findings = judge(results)
    if as_json:
        show_json([finding.as_dict() for finding in findings])
    else:
        show_findings(findings)


def show_findings(findings: Sequence[Finding]) -> None:
    """Print claims with their verdicts and the evidence, one after another."""
    from rich.console import Console

    console = Console(highlight=False, emoji=False, markup=False)
    for finding in findings:
        console.print(f"{finding.claim}: {finding.verdict.value}", style="bold", soft_wrap=True)
        console.print(f'  "{finding.sentence}" ({finding.place})')
        console.print(f"  {finding.condition}. {finding.reading}")
        for evidence in finding.evidence:
            console.print(f"    {evidence_words(evidence)}")
        if finding.missing and finding.evidence:
            console.print(f"    not there: {', '.join(finding.missing)}")


def evidence_words(evidence: Evidence) -> str:
    """A number behind a verdict, with its interval."""
    factor, unit = (100, " points") if evidence.unit == "points" else (1, " times")
    mean, low, high = (factor * value for value in (evidence.estimate.mean, evidence.low, evidence.high))
    interval = "one seed, no interval" if low != low else f"95 %: {low:.2f} to {high:.2f}"
    return f"{evidence.words}: {mean:.2f}{unit} ({interval}; {evidence.verdict.value})"
