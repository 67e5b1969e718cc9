"""`fopng report`: a page, tables or figures from the runs that are there."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fopng.cli.options import JsonOption, OnlyBenchmarks, OnlyMethods, OnlyProtocol

if TYPE_CHECKING:
    from fopng.lab.runs.result import RunResult


class Format(StrEnum):
    """What a report can be written as."""

    HTML = "html"
    MARKDOWN = "md"
    CSV = "csv"
    JSON = "json"
    PNG = "png"
    SVG = "svg"
    PDF = "pdf"

    @property
    def target(self) -> Path:
        """Where it goes when nothing else is said: images are several, and go into a folder."""
        return Path("figures") if self in (Format.PNG, Format.SVG) else Path(f"report.{self.value}")


def report(
    places: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUNS", help="Folders of runs, or of exported results; runs when left out.", show_default=False
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The file; report.html when left out. For png and svg the folder of the figures.",
            show_default=False,
        ),
    ] = None,
    kind: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="html: the page. md: its tables. csv: a row a run. json: the results. png, svg: its figures, "
            "a file each. pdf: its figures, a page each. By the ending of the file when left out.",
            show_default=False,
        ),
    ] = None,
    benchmark: OnlyBenchmarks = None,
    method: OnlyMethods = None,
    protocol: OnlyProtocol = None,
    matrix: Annotated[
        bool,
        typer.Option("--matrix", help="In a .csv file the accuracy matrices, a row an entry, instead of the scores."),
    ] = False,
    title: Annotated[str, typer.Option("--title", help="The page's title.")] = "Continual learning",
    as_json: JsonOption = False,
) -> None:
    """Make a page from whatever runs are there, and print its tables."""
    from fopng.cli.results import asked_for, show_results

    kind = kind or _format_of(output)
    if matrix and kind is not Format.CSV:
        raise ValueError(f"Expected --format csv for --matrix, got {kind.value}.")
    places = places or [Path("runs")]
    results = asked_for(
        places, benchmark, method, protocol, damaged=lambda error: typer.echo(f"fopng: {error}", err=True)
    )
    show_results(results, as_json=as_json)
    _write(output or kind.target, kind, results, title=title, matrix=matrix)


def _format_of(output: Path | None) -> Format:
    if output is None:
        return Format.HTML
    ending = output.suffix.removeprefix(".")
    files = [known.value for known in Format if known.target.suffix]
    if ending not in files:
        raise ValueError(
            f"Expected a file that ends in .{', .'.join(files)}, got {output}. "
            "For a folder of images add --format png or --format svg."
        )
    return Format(ending)


def _write(output: Path, kind: Format, results: list[RunResult], *, title: str, matrix: bool) -> None:
    from fopng.cli.reproduction import findings
    from fopng.cli.results import say_written, write_page
    from fopng.lab.report import write_figures, write_markdown, write_pdf
    from fopng.lab.runs.export import write_json, write_matrix_csv, write_summary_csv

    if kind is Format.HTML:
        write_page(output, results, title=title)
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    if kind in (Format.PNG, Format.SVG):
        for path in write_figures(output, results, kind=kind.value):
            say_written(path)
        return
    if kind is Format.MARKDOWN:
        write_markdown(output, results, title=title, findings=findings(results))
    elif kind is Format.PDF:
        write_pdf(output, results)
    elif kind is Format.JSON:
        write_json(output, results)
    else:
        (write_matrix_csv if matrix else write_summary_csv)(output, results)
    say_written(output)
