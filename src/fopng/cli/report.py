"""`fopng report`: a page, tables or figures from the runs that are there."""

from __future__ import annotations

from pathlib import Path

import typer

from fopng.cli.commands import Report
from fopng.cli.options import ReportFormat
from fopng.cli.results import asked_for, say_written, show_results, write_page
from fopng.lab.report.files import write_figures
from fopng.lab.report.tables import write_markdown
from fopng.lab.runs.export import write_json, write_matrix_csv, write_summary_csv
from fopng.lab.runs.result import RunResult

CHARTS = (ReportFormat.PNG, ReportFormat.SVG, ReportFormat.PDF)
"""These are several files, and go into a folder."""


def report(options: Report) -> None:
    """Print the tables and write the file."""
    kind = options.kind or _format_of(options.output)
    if options.matrix and kind is not ReportFormat.CSV:
        raise ValueError(f"Expected --format csv for --matrix, got {kind.value}.")
    results = asked_for(
        options.places or [Path("runs")],
        options.benchmark,
        options.method,
        options.protocol,
        damaged=lambda error: typer.echo(f"fopng: {error}", err=True),
    )
    show_results(results, as_json=options.as_json)
    target = options.output or Path("charts" if kind in CHARTS else f"report.{kind.value}")
    _write(target, kind, results, title=options.title, matrix=options.matrix)


def _format_of(output: Path | None) -> ReportFormat:
    if output is None:
        return ReportFormat.HTML
    ending = output.suffix.removeprefix(".")
    files = [known.value for known in ReportFormat if known not in CHARTS]
    if ending not in files:
        raise ValueError(
            f"Expected a file that ends in .{', .'.join(files)}, got {output}. "
            "For a folder of charts add --format png, svg or pdf."
        )
    return ReportFormat(ending)


def _write(output: Path, kind: ReportFormat, results: list[RunResult], *, title: str, matrix: bool) -> None:
    if kind is ReportFormat.HTML:
        write_page(output, results, title=title)
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    if kind in CHARTS:
        for path in write_figures(output, results, kind=kind.value):
            say_written(path)
        return
    if kind is ReportFormat.MARKDOWN:
        write_markdown(output, results, title=title)
    elif kind is ReportFormat.JSON:
        write_json(output, results)
    else:
        (write_matrix_csv if matrix else write_summary_csv)(output, results)
    say_written(output)
