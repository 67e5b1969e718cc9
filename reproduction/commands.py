"""What the commands of the reproduction do: `paper`, `claims` and `pages`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from fopng.cli.output import show_json, show_table
from fopng.cli.results import say, say_written, show_results, write_page
from fopng.cli.run_options import parse_seeds
from fopng.cli.work import do_runs
from fopng.lab.data.errors import DataError
from fopng.lab.engine.observers.progress import duration
from fopng.lab.report.claims import Evidence, Finding
from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.result import RunResult
from fopng.lab.runs.store import Store, load_results
from fopng.lab.schedule.cost import Cost
from fopng.lab.schedule.machine import threads_used
from fopng.lab.schedule.runner import raise_for
from fopng.lab.storage import atomic
from reproduction import FOLDER, RESULTS
from reproduction.claims import judge
from reproduction.options import Claims, Pages, Paper, Protocols
from reproduction.pages import pages as pages_of
from reproduction.plan import Part, paper_parts


def paper(options: Paper) -> None:
    """Do the runs, part by part; print their scores and the verdicts, and write the page."""
    parts = _parts(options)
    _show_plan(parts, options, dry_run=options.dry_run, estimate=options.estimate)
    if options.dry_run:
        return
    done: dict[str, RunResult] = {}
    for number, (part, configs) in enumerate(parts, start=1):
        say(f"Part {number} of {len(parts)}: {part.title}")
        # The paper's value of an ablated setting was done with the comparison.
        new = [config for config in configs if config.key not in done]
        done |= {
            result.config.key: result for result in do_runs(new, options.runner(keep_going=True), again=options.again)
        }
    results = list(done.values())
    findings = judge(results)
    if options.as_json:
        show_json({"results": [r.as_dict() for r in results], "claims": [each.as_dict() for each in findings]})
    else:
        show_results(results, as_json=False)
        show_findings(findings)
    write_page(options.page or options.out / "paper.html", results, title="The paper, end to end")
    raise_for([config for _, configs in parts for config in configs if config.key not in done])


def _parts(options: Paper) -> list[tuple[Part, list[RunConfig]]]:
    try:
        return [(part, part.configurations()) for part in _asked(options)]
    except DataError as error:
        raise DataError(
            f"{error}\nOr leave out what needs it: --only split-mnist --only rotated-mnist --only ablations"
        ) from error


def _show_plan(parts: Sequence[tuple[Part, list[RunConfig]]], options: Paper, *, dry_run: bool, estimate: bool) -> None:
    """How much there is to do, and how long it will take: on stdout when that is all that was asked for."""
    rows = _planned(parts, options, estimate=estimate)
    missing, seconds = sum(row.missing for row in rows), sum(row.seconds or 0 for row in rows)
    if dry_run and options.as_json:
        show_json([vars(row) for row in rows])
    elif dry_run:
        columns = ("part", "runs", "missing", "time")
        cells = [(row.part, str(row.runs), str(row.missing), _time(row.seconds)) for row in rows]
        show_table(columns, cells, right=columns[1:])
    if missing:
        time = f", about {duration(seconds)} here" if estimate else ""
        say(
            f"{missing} of {sum(row.runs for row in rows)} runs to do{time}. What is interrupted goes on with the same command."
        )


def _asked(options: Paper) -> list[Part]:
    protocols = ["matched", "printed"] if options.protocol is Protocols.BOTH else [options.protocol.value]
    seeds, only = parse_seeds(options.seeds), options.only or []
    return paper_parts(protocols=protocols, seeds=seeds, epochs=options.epochs, only=only, data_dir=options.data_dir)


@dataclass(frozen=True)
class _Planned:
    part: str
    runs: int
    missing: int
    seconds: float | None


def _planned(parts: Sequence[tuple[Part, list[RunConfig]]], options: Paper, *, estimate: bool) -> list[_Planned]:
    runner = replace(options.runner(), notice=say)
    known = Store(options.out).results(damaged=lambda error: None) if options.out.is_dir() else []
    cost, counted, rows = Cost(runner, known), set[str](), []
    for part, configs in parts:
        # The paper's value of an ablated setting is done with the comparison already.
        new = [config for config in configs if config.key not in counted]
        counted |= {config.key for config in new}
        seconds = None
        if estimate and new:
            with threads_used(options.threads, new[0].model):
                # what groups gain that share a GPU is not known beforehand
                seconds = cost.seconds(new, 1 if runner.device.type == "cuda" else options.jobs)
        rows.append(_Planned(part.title, len(new), len(runner.unfinished(new)), seconds))
    return rows


def _time(seconds: float | None) -> str:
    return "" if seconds is None else duration(seconds)


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
    factor, unit = (100, " points") if evidence.unit == "points" else (1, " times")
    mean, low, high = (factor * value for value in (evidence.estimate.mean, *evidence.interval()))
    interval = "one seed, no interval" if low != low else f"95 %: {low:.2f} to {high:.2f}"
    return f"{evidence.words}: {mean:.2f}{unit} ({interval}; {evidence.verdict().value})"


def pages(options: Pages) -> None:
    """Write the pages."""
    made = pages_of(FOLDER.parent, load_results(options.places or [RESULTS]))
    for path, text in made.items():
        atomic.write_text(path, text)
        say_written(path)
    if options.as_json:
        show_json(list(made))
