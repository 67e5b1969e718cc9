"""The options that several commands share, each said once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

if TYPE_CHECKING:
    from fopng.cli.work import Means
    from fopng.request import Request


class Protocol(StrEnum):
    """What the first task is learnt with."""

    MATCHED = "matched"
    PRINTED = "printed"


class Engine(StrEnum):
    """How runs are done."""

    AUTO = "auto"
    REPLICAS = "replicas"
    SINGLE = "single"


class PrecisionName(StrEnum):
    """How numbers are held and multiplied."""

    FLOAT32 = "float32"
    TF32 = "tf32"
    BFLOAT16 = "bfloat16"
    FLOAT64 = "float64"


class Device(StrEnum):
    """Where runs are done."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"
    MPS = "mps"


class Tracker(StrEnum):
    """Who else is told."""

    TENSORBOARD = "tensorboard"


class ScenarioName(StrEnum):
    """What a model is told about the task."""

    TASK = "task"
    DOMAIN = "domain"
    CLASS = "class"


def complete_methods(incomplete: str) -> list[str]:
    """Names of methods, for the shell."""
    from fopng.methods.catalog import METHODS

    return [name for name in METHODS if name.startswith(incomplete)]


def complete_benchmarks(incomplete: str) -> list[str]:
    """Names of benchmarks, for the shell."""
    from fopng.benchmarks.catalog import BENCHMARKS

    return [name for name in BENCHMARKS if name.startswith(incomplete)]


_WHAT, _HOW = "What is run", "How it is run"

BenchmarkArgument = Annotated[
    str,
    typer.Argument(
        help="A benchmark (see: fopng benchmarks), a folder of images, or module:function.",
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
        help="How many seeds, counted from 0, or a list such as 0,3,7.",
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
    ScenarioName | None,
    typer.Option(
        "--scenario",
        help="What the model is told; the benchmark's own when left out.",
        show_default=False,
        rich_help_panel=_WHAT,
    ),
]
ProtocolOption = Annotated[
    Protocol,
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
        help="mlp, convnet or module:function; the paper's for such images when left out.",
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
    Engine,
    typer.Option(
        "--engine",
        help="replicas: runs that are alike side by side. single: one run after another. auto: what is faster.",
        rich_help_panel=_HOW,
    ),
]
DeviceOption = Annotated[
    Device, typer.Option("--device", help="auto: a CUDA device if there is one, or else the CPU.", rich_help_panel=_HOW)
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        help="Threads of the CPU for one run; 1 for an MLP, all for a ConvNet when left out.",
        show_default=False,
        rich_help_panel=_HOW,
    ),
]
JobsOption = Annotated[
    int, typer.Option("--jobs", min=1, help="Processes that do runs at the same time.", rich_help_panel=_HOW)
]
AgainOption = Annotated[bool, typer.Option("--again", help="Do finished runs again.", rich_help_panel=_HOW)]
TrackOption = Annotated[
    Tracker | None,
    typer.Option(
        "--track", help="Write curves for TensorBoard into each run's folder.", show_default=False, rich_help_panel=_HOW
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What `run` and `compare` can be told, with the defaults."""

    seeds: SeedsOption = "1"
    assignments: SetOption = None
    settings: SettingsOption = None
    epochs: EpochsOption = None
    batch_size: BatchSizeOption = None
    dataset: DatasetOption = None
    scenario: ScenarioOption = None
    protocol: ProtocolOption = Protocol.MATCHED
    first_task_lr: FirstTaskRateOption = None
    model: ModelOption = None
    validation: ValidationOption = False
    precision: PrecisionOption = PrecisionName.FLOAT32
    out: OutOption = Path("runs")
    data_dir: DataDirOption = None
    engine: EngineOption = Engine.AUTO
    device: DeviceOption = Device.AUTO
    threads: ThreadsOption = None
    jobs: JobsOption = 1
    again: AgainOption = False
    track: TrackOption = None
    as_json: JsonOption = False

    def request(self, benchmark: str, methods: Sequence[str]) -> Request:
        """What is asked for."""
        from fopng.request import Request

        return Request(
            benchmark=benchmark,
            methods=methods,
            seeds=parse_seeds(self.seeds),
            dataset=self.dataset,
            scenario=self.scenario,
            model=self.model,
            protocol=self.protocol.value,
            first_task_lr=self.first_task_lr,
            epochs=self.epochs,
            batch_size=self.batch_size,
            assignments=self.assignments or (),
            settings_file=self.settings,
            validation=self.validation,
            precision=self.precision.value,
            data_dir=self.data_dir,
        )

    def means(self) -> Means:
        """How it is done."""
        from fopng.cli.work import Means

        return Means(
            out=self.out,
            data_dir=self.data_dir,
            device=self.device,
            threads=self.threads,
            jobs=self.jobs,
            again=self.again,
            tensorboard=self.track is not None,
            engine=self.engine,
        )


def takes_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command, whose last argument is `options`, the options of `RunOptions` one by one.

    The command-line library reads a function's parameters; this writes them from the dataclass, so that each is said once.
    """
    own = [parameter for name, parameter in signature(command, eval_str=True).parameters.items() if name != "options"]
    hints = get_type_hints(RunOptions, include_extras=True)
    shared = [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name])
        for field in fields(RunOptions)
    ]

    @wraps(command)
    def flat(**words: Any) -> None:
        options = RunOptions(**{parameter.name: words.pop(parameter.name) for parameter in shared})
        command(**words, options=options)

    parameters = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in own] + shared
    flat.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del flat.__wrapped__
    return flat


def parse_seeds(written: str) -> list[int]:
    """`5` is the seeds 0 to 4; `0,3,7` and `3,` are lists.

    >>> parse_seeds("3"), parse_seeds("0,3,7"), parse_seeds("3,")
    ([0, 1, 2], [0, 3, 7], [3])
    """
    try:
        numbers = [int(part) for part in written.split(",") if part.strip()]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 0 or ("," not in written and numbers[0] < 1):
        raise ValueError(
            f"Expected a number of seeds such as 5, or a list such as 0,3,7, for --seeds, got {written!r}."
        )
    if "," in written:
        return numbers
    if numbers[0] > 10_000:
        raise ValueError(f"Expected at most 10000 seeds, got {written}. Give a list for large ones, such as {written},")
    return list(range(numbers[0]))
