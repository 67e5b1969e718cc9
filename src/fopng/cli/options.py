"""The options that several commands share, each said once."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated

import typer

from fopng.lab.choices import DeviceName, EngineName, PrecisionName, ProtocolName, Scenario


class ReportFormat(StrEnum):
    """What a report can be written as."""

    HTML = "html"
    MARKDOWN = "md"
    CSV = "csv"
    JSON = "json"
    PNG = "png"
    SVG = "svg"
    PDF = "pdf"


def names_in(where: str, *others: str) -> Callable[[str], list[str]]:
    """What completes names for the shell: those of a dictionary or a list, `module:name`, or what a function returns."""

    def complete(incomplete: str) -> list[str]:
        """The names that begin so."""
        found = resolve_name(where)
        names = [*(found() if callable(found) else found), *others]
        return [name for name in names if name.startswith(incomplete)]

    return complete


complete_methods = names_in("fopng.optim:METHODS_BY_FILE", "joint")
complete_benchmarks = names_in("fopng.lab.benchmarks.registry:BENCHMARKS")


def complete_settings(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of settings for the shell: those of the methods and of the benchmark that were typed already, or of all."""
    found: list[str] = resolve_name("fopng.cli.methods:setting_names")(ctx.args)
    return [f"{name}=" for name in found if name.startswith(incomplete)]


_WHAT, _HOW = "What is run", "How it is run"

BenchmarkArgument = Annotated[
    str,
    typer.Argument(
        help="A benchmark (see: fopng benchmarks), a folder of images, or module:function (which is run).",
        autocompletion=complete_benchmarks,
        show_default=False,
    ),
]
MethodArgument = Annotated[
    str, typer.Argument(help="A method (see: fopng methods).", autocompletion=complete_methods, show_default=False)
]
MethodsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        help="Methods; the paper's seven when left out.", autocompletion=complete_methods, show_default=False
    ),
]
SeedsOption = Annotated[
    str,
    typer.Option(
        "--seeds",
        metavar="N|LIST",
        help="How many seeds, counted from 0, or a list such as 0,3,7 or 10-14.",
        rich_help_panel=_WHAT,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of the method or of the benchmark, such as lr=1e-3 or tasks=3. METHOD.NAME=VALUE for one of "
        "several methods. Can be repeated.",
        autocompletion=complete_settings,
        show_default=False,
        rich_help_panel=_WHAT,
    ),
]
ExperimentOption = Annotated[
    str | None,
    typer.Option(
        "--experiment",
        metavar="NAME",
        help="The name of a comparison that these runs belong to; a report keeps comparisons apart.",
        show_default=False,
        rich_help_panel=_WHAT,
    ),
]
SettingsOption = Annotated[
    Path | None,
    typer.Option(
        "--settings",
        metavar="FILE",
        help="A TOML file of settings: top level for every method, a table for each method, \\[benchmark] for the benchmark.",
        show_default=False,
        rich_help_panel=_WHAT,
    ),
]
EpochsOption = Annotated[
    int | None,
    typer.Option(
        "--epochs", help="Epochs a task; the paper's when left out.", show_default=False, rich_help_panel=_WHAT
    ),
]
BatchSizeOption = Annotated[
    int | None,
    typer.Option(
        "--batch-size", help="Samples a step; the paper's 10 when left out.", show_default=False, rich_help_panel=_WHAT
    ),
]
DatasetOption = Annotated[
    str | None,
    typer.Option(
        "--dataset",
        help="Another dataset under the same benchmark, such as mnist-5k.",
        show_default=False,
        rich_help_panel=_WHAT,
    ),
]
ScenarioOption = Annotated[
    Scenario | None,
    typer.Option(
        "--scenario",
        help="What the model is told; the benchmark's own when left out.",
        show_default=False,
        rich_help_panel=_WHAT,
    ),
]
ProtocolOption = Annotated[
    ProtocolName,
    typer.Option(
        "--protocol",
        help="matched: every method learns the first task with the same SGD. printed: as the paper's text says.",
        rich_help_panel=_WHAT,
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="mlp, convnet or module:function (which is run); the paper's for such images when left out.",
        show_default=False,
        rich_help_panel=_WHAT,
    ),
]
ValidationOption = Annotated[
    bool,
    typer.Option(
        "--validation", help="Hold back a tenth of the training set and measure on it too.", rich_help_panel=_WHAT
    ),
]
FirstTaskRateOption = Annotated[
    float | None,
    typer.Option(
        "--first-task-lr",
        help="The learning rate of SGD on the first task; the protocol's when left out.",
        show_default=False,
        rich_help_panel=_WHAT,
    ),
]
PrecisionOption = Annotated[
    PrecisionName,
    typer.Option(
        "--precision",
        help="Of the numbers; tf32 and bfloat16 are faster on a GPU, float32 is for numbers to publish.",
        rich_help_panel=_WHAT,
    ),
]
OutOption = Annotated[Path, typer.Option("--out", help="The folder of the runs.", rich_help_panel=_HOW)]
RunsOption = Annotated[Path, typer.Option("--out", help="The folder of the runs.")]
DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        help="A folder to look for datasets in first; FOPNG_DATA is the same.",
        show_default=False,
        rich_help_panel=_HOW,
    ),
]
EngineOption = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        help="replicas: runs that are alike side by side. single: one run after another. auto: what is faster. "
        "ray: on a cluster, or on all cores and GPUs of this machine.",
        rich_help_panel=_HOW,
    ),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--address",
        help="The Ray cluster for --engine ray, HOST:PORT; this machine is one of it. RAY_ADDRESS is the same.",
        show_default=False,
        rich_help_panel=_HOW,
    ),
]
DeviceOption = Annotated[
    DeviceName,
    typer.Option("--device", help="auto: a CUDA device if there is one, or else the CPU.", rich_help_panel=_HOW),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        help="Threads of the CPU; when left out, 1 for MLPs, and for a ConvNet OMP_NUM_THREADS or all.",
        show_default=False,
        rich_help_panel=_HOW,
    ),
]
JobsOption = Annotated[
    int,
    typer.Option(
        "--jobs",
        min=1,
        help="Processes that do runs at the same time; on a GPU, methods or benchmarks that one process does at the same time.",
        rich_help_panel=_HOW,
    ),
]
AgainOption = Annotated[bool, typer.Option("--again", help="Do finished runs again.", rich_help_panel=_HOW)]
TrackOption = Annotated[
    list[str] | None,
    typer.Option(
        "--track",
        help="Write curves for TensorBoard or Weights & Biases into each run's folder, or for MLflow into that of all runs. "
        "Can be repeated.",
        autocompletion=names_in("fopng.lab.engine.observers:TRACKERS"),
        show_default=False,
        rich_help_panel=_HOW,
    ),
]
SearchFirstOption = Annotated[
    Path | None,
    typer.Option("--data-dir", help="A folder to look in first; FOPNG_DATA is the same.", show_default=False),
]
PageOption = Annotated[
    Path | None,
    typer.Option("--page", help="Where the page goes; into the folder of the runs when left out.", show_default=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

OnlyBenchmarks = Annotated[
    list[str] | None,
    typer.Option(
        "--benchmark", help="Only this one. Can be repeated.", autocompletion=complete_benchmarks, show_default=False
    ),
]
OnlyMethods = Annotated[
    list[str] | None,
    typer.Option(
        "--method", help="Only this one. Can be repeated.", autocompletion=complete_methods, show_default=False
    ),
]
OnlyProtocol = Annotated[ProtocolName | None, typer.Option("--protocol", help="Only this one.", show_default=False)]

DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be done and how long it would take, and do nothing.")
]
EstimateOption = Annotated[bool, typer.Option(help="Estimate the time, from finished runs or a short measurement.")]
