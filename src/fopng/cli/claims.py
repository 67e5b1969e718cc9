"""`fopng claims`: what runs say about the paper's sentences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fopng.cli.options import JsonOption
from fopng.cli.output import show_json

if TYPE_CHECKING:
    from fopng.lab.runs.findings import Evidence, Finding


def claims(
    places: Annotated[
        list[Path] | None, typer.Argument(help="Folders of runs, or of exported results; runs when left out.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Judge each sentence of the paper that runs can decide: the verdict, and the numbers behind it."""
    from fopng.lab.claims import judge
    from fopng.lab.runs.store import load_results

    results = load_results(places or [Path("runs")], damaged=lambda error: typer.echo(f"fopng: {error}", err=True))
    findings = judge(results)
    if as_json:
        show_json([finding.as_dict() for finding in findings])
    else:
        show_findings(findings)


def show_findings(findings: Sequence[Finding]) -> None:
    """Print claims with their verdicts and the evidence, one after another; those without runs by name alone."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console(highlight=False, emoji=False)
    for finding in (each for each in findings if each.evidence):
        console.print(Text(f"{finding.claim}: {finding.verdict.value}", style="bold"))
        missing = [f"Not there: {', '.join(finding.missing)}."] if finding.missing else []
        lines = [f'"{finding.sentence}" {finding.place}.', f"{finding.reading} Here: {finding.condition}.", *missing]
        for indent, words in [(2, line) for line in lines] + [(4, evidence_words(each)) for each in finding.evidence]:
            console.print(Padding(Text(words), (0, 0, 0, indent)))
    without = [finding.claim for finding in findings if not finding.evidence]
    if without:
        console.print(Text(f"No runs that decide: {', '.join(without)}"))


def evidence_words(evidence: Evidence) -> str:
    """A number behind a verdict, with its interval."""
    factor, unit = (100, " points") if evidence.unit == "points" else (1, " times")
    mean, low, high = (factor * value for value in (evidence.estimate.mean, evidence.low, evidence.high))
    interval = "one seed, no interval" if low != low else f"95 %: {low:.2f} to {high:.2f}"
    return f"{evidence.words}: {mean:.2f}{unit} ({interval}; {evidence.verdict.value})"
