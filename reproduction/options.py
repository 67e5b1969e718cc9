"""The commands of the reproduction and their options: `paper` and `claims`, which `fopng` has too, `tolerance` and `pages`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fopng.cli.lazy import Command
from fopng.cli.options import (
    DataDirOption,
    DeviceOption,
    DryRunOption,
    EpochsOption,
    EstimateOption,
    JobsOption,
    JsonOption,
    PageOption,
    SeedsOption,
    names_in,
)
from fopng.cli.run_options import WorkOptions
from reproduction import RESULTS

COMMANDS = {
    "paper": Command(
        "Do the paper's experiments, and judge its claims.", "reproduction.options:Paper", "reproduction.commands:paper"
    ),
    "claims": Command(
        "Judge the paper's claims by the runs that are there.",
        "reproduction.options:Claims",
        "reproduction.commands:claims",
    ),
    "tolerance": Command(
        "Measure how much old tasks lose, beside how much was allowed.",
        "reproduction.options:Tolerance",
        "reproduction.tolerance.command:tolerance",
    ),
    "pages": Command(
        "Write the numbers of the documentation.", "reproduction.options:Pages", "reproduction.commands:pages"
    ),
}
"""By name."""


class Protocols(StrEnum):
    """Which protocols the paper is done under."""

    MATCHED = "matched"
    PRINTED = "printed"
    BOTH = "both"


@dataclass(frozen=True, kw_only=True)
class Paper(WorkOptions):
    """Five benchmarks, seven methods and those beside them, five seeds, three ablations.

    Example: fopng paper --only split-mnist --seeds 1 --epochs 1 --dry-run
    """

    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            help="A benchmark, an ablation (lambda, alpha, fisher-samples), comparisons or ablations. Can be repeated.",
            autocompletion=names_in("reproduction.plan:part_names"),
            show_default=False,
        ),
    ] = None
    dry_run: DryRunOption = False
    estimate: EstimateOption = True
    page: PageOption = None
    seeds: SeedsOption = "5"
    epochs: EpochsOption = None
    protocol: Annotated[
        Protocols,
        typer.Option(
            "--protocol",
            help="matched: every method learns the first task with the same SGD. printed: as the paper's text says. "
            "both: one after the other.",
        ),
    ] = Protocols.MATCHED


@dataclass(frozen=True, kw_only=True)
class Claims:
    """For each: the verdict, and the numbers behind it.

    Example: fopng claims runs
    """

    places: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUNS", help="Folders of runs, or of exported results; runs when left out.", show_default=False
        ),
    ] = None
    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """Eight streams, twelve contenders, three seeds; runs that have a result are left alone.

    Example: python -m reproduction tolerance --streams split-mnist,texts --seeds 1 --jobs 2
    """

    streams: Annotated[
        str | None,
        typer.Option("--streams", help="Names of streams, parted by commas; all when left out.", show_default=False),
    ] = None
    contenders: Annotated[
        str | None,
        typer.Option(
            "--contenders", help="Names of contenders, parted by commas; all when left out.", show_default=False
        ),
    ] = None
    seeds: SeedsOption = "3"
    out: Annotated[Path, typer.Option("--out", help="The folder of the results.")] = RESULTS / "tolerance"
    cache: Annotated[
        Path | None,
        typer.Option(
            "--cache",
            help="Where models of the first texts are kept; fopng's own cache when left out.",
            show_default=False,
        ),
    ] = None
    data_dir: DataDirOption = None
    device: DeviceOption = "cpu"
    jobs: JobsOption = 1
    dry_run: DryRunOption = False
    pack: Annotated[
        Path | None,
        typer.Option(
            "--pack",
            help="Write all data that the streams take into this folder, for a machine without it, and do nothing else.",
            show_default=False,
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Pages:
    """The tables of README.md and the pages under docs; the same results give the same pages, to the byte.

    Example: python -m reproduction pages
    """

    places: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RESULTS",
            help="Folders of exported results, or of runs; the committed results when left out.",
            show_default=False,
        ),
    ] = None
    as_json: JsonOption = False
