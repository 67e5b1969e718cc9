"""What the commands of the reproduction do: `paper`, `claims` and `pages`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from fopng.cli.output import show_json, show_table
from fopng.cli.planned import here, time_of
from fopng.cli.results import say, say_written, show_results, write_page
from fopng.cli.run_options import parse_seeds
from fopng.cli.work import do_runs, runner_of
from fopng.lab.data.errors import DataError
from fopng.lab.engine.observers.progress import duration
from fopng.lab.runs.request import require_data
from fopng.lab.runs.result import RunResult
from fopng.lab.runs.store import load_results
from fopng.lab.schedule.runner import raise_for
from fopng.lab.storage import atomic
from reproduction import FOLDER, RESULTS
from reproduction.claims import judge
from reproduction.claims.finding import Evidence, Finding
from reproduction.options import Claims, Pages, Paper, Protocols
from reproduction.pages import pages as pages_of
from reproduction.plan import Part, paper_parts


def paper(options: Paper) -> None:
    """Do the runs, part by part; print their scores and the verdicts, and write the page."""
    parts = _parts(options)
    _show_plan(parts, options)
    if options.dry_run:
        return
    runner, done = runner_of(options, keep_going=True), dict[str, RunResult]()
    for number, part in enumerate(parts, start=1):
        say(f"Part {number} of {len(parts)}: {part.title}")
        # The paper's value of an ablated setting was done with the comparison, and gets one name more.
        new, there = ([config for config in part.configs if (config.key in done) is known] for known in (False, True))
        results = do_runs(new, runner, part.experiment, again=options.again) + do_runs(there, runner, part.experiment)
        done |= {result.config.key: result for result in results}
    results = list(done.values())
    findings = judge(results)
    if options.as_json:
        show_json({"results": [r.as_dict() for r in results], "claims": [each.as_dict() for each in findings]})
    else:
        show_results(results, as_json=False)
        show_findings(findings)
    write_page(options.page or options.out / "paper.html", results, title="The paper, end to end")
    raise_for([config for part in parts for config in part.configs if config.key not in done])


def _parts(options: Paper) -> list[Part]:
    protocols = ["matched", "printed"] if options.protocol is Protocols.BOTH else [options.protocol.value]
    seeds, only = parse_seeds(options.seeds), options.only or []
    parts = list(
        paper_parts(protocols=protocols, seeds=seeds, epochs=options.epochs, only=only, data_dir=options.data_dir)
    )
    try:
        require_data([config for part in parts for config in part.configs], options.data_dir)
    except DataError as error:
        raise DataError(
            f"{error}\nOr leave out what needs it: --only split-mnist --only rotated-mnist --only ablations"
        ) from error
    return parts


def _show_plan(parts: Sequence[Part], options: Paper) -> None:
    """How much there is to do, and how long it will take: on stdout when that is all that was asked for."""
    time, counted, rows = time_of(options, estimate=options.estimate), set[str](), []
    for part in parts:
        # The paper's value of an ablated setting is done with the comparison already.
        new = [config for config in part.configs if config.key not in counted]
        counted |= {config.key for config in new}
        missing = new if options.again else runner_of(options).unfinished(new)
        rows.append(_Planned(part.title, len(new), len(missing), time(missing)))
    if options.dry_run and options.as_json:
        show_json([row._asdict() for row in rows])
    elif options.dry_run:
        cells = [
            (row.part, str(row.runs), str(row.missing), "" if row.seconds is None else duration(row.seconds))
            for row in rows
        ]
        show_table(("part", "runs", "missing", "time"), cells, right=("runs", "missing", "time"))
    if left := sum(row.missing for row in rows):
        seconds = sum(row.seconds or 0 for row in rows) if options.estimate else None
        runs = sum(row.runs for row in rows)
        say(f"{left} of {runs} runs to do{here(seconds)}. What is interrupted goes on with the same command.")


class _Planned(NamedTuple):
    part: str
    runs: int
    missing: int
    seconds: float | None


def claims(options: Claims) -> None:
    """Print the verdicts."""
    places = options.places or [Path("runs")]
    findings = judge(load_results(places, damaged=lambda error: typer.echo(f"fopng: {error}", err=True)))
    if options.as_json:
        show_json([finding.as_dict() for finding in findings])
    else:
        show_findings(findings)


def show_findings(findings: Sequence[Finding]) -> None:
    """Print claims with their verdicts and the evidence, one after another; those without runs by name alone."""
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
    mean, low, high = (evidence.shown(value).split()[0] for value in (evidence.estimate.mean, *evidence.interval()))
    interval = f"95 %: {low} to {high}" if evidence.estimate.count > 1 else "one seed, no interval"
    return f"{evidence.words}: {mean} {evidence.unit} ({interval}; {evidence.verdict().value})"


def pages(options: Pages) -> None:
    """Write the pages."""
    made = pages_of(FOLDER.parent, load_results(options.places or [RESULTS]))
    for path, text in made.items():
        atomic.write_text(path, text)
        say_written(path)
    if options.as_json:
        show_json(list(made))
