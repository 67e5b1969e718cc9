"""The options of the commands that do runs, as one dataclass."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from fopng.cli.options import (
    AddressOption,
    AgainOption,
    BatchSizeOption,
    DataDirOption,
    DatasetOption,
    DeviceOption,
    DryRunOption,
    EngineOption,
    EpochsOption,
    EstimateOption,
    ExperimentOption,
    FirstTaskRateOption,
    JobsOption,
    JsonOption,
    ModelOption,
    OutOption,
    PrecisionOption,
    ProtocolOption,
    ScenarioOption,
    SeedsOption,
    SetOption,
    SettingsOption,
    ThreadsOption,
    TrackOption,
    ValidationOption,
)


@dataclass(frozen=True, kw_only=True)
class WorkOptions:
    """How runs are done, with the defaults."""

    out: OutOption = Path("runs")
    data_dir: DataDirOption = None
    engine: EngineOption = "auto"
    address: AddressOption = None
    device: DeviceOption = "auto"
    threads: ThreadsOption = None
    jobs: JobsOption = 1
    again: AgainOption = False
    track: TrackOption = None
    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class RunOptions(WorkOptions):
    """What is run, with the defaults."""

    seeds: SeedsOption = "1"
    assignments: SetOption = None
    settings_file: SettingsOption = None
    epochs: EpochsOption = None
    batch_size: BatchSizeOption = None
    dataset: DatasetOption = None
    scenario: ScenarioOption = None
    protocol: ProtocolOption = "matched"
    first_task_lr: FirstTaskRateOption = None
    model: ModelOption = None
    validation: ValidationOption = False
    precision: PrecisionOption = "float32"
    dry_run: DryRunOption = False
    estimate: EstimateOption = True


@dataclass(frozen=True, kw_only=True)
class ComparisonOptions(RunOptions):
    """What `run` and `compare` can be told beside that."""

    experiment: ExperimentOption = None

    @property
    def comparison(self) -> str:
        """The name that is stored with each result."""
        return "comparison" if self.experiment is None else f"comparison/{self.experiment}"


_MOST_SEEDS = 10_000
"""More are a slip."""

_SEEDS = re.compile(r"\s*(?P<first>[0-9]{1,18})\s*(?:-\s*(?P<last>[0-9]{1,18})\s*)?")


def parse_seeds(written: str) -> list[int]:
    """`5` is the seeds 0 to 4; `0,3,7`, `3,` and `10-14` are lists.

    >>> parse_seeds("3"), parse_seeds("0,3,7"), parse_seeds("3,"), parse_seeds("1,10-12")
    ([0, 1, 2], [0, 3, 7], [3], [1, 10, 11, 12])
    """
    parts = [_SEEDS.fullmatch(part) for part in written.split(",") if part.strip()]
    spans = [(int(part["first"]), int(part["last"] or part["first"])) for part in parts if part]
    counted = "," not in written and "-" not in written
    backwards = any(last < first for first, last in spans)
    if not parts or len(spans) < len(parts) or backwards or (counted and spans[0][0] < 1):
        raise ValueError(
            f"Expected a number of seeds such as 5, or a list such as 0,3,7 or 10-14, for --seeds, got {written!r}."
        )
    if counted:
        spans = [(0, spans[0][0] - 1)]
    if sum(last - first + 1 for first, last in spans) > _MOST_SEEDS:
        large = f" Give a list for large ones, such as {written.strip()}," if counted else ""
        raise ValueError(f"Expected at most {_MOST_SEEDS} seeds, got {written}.{large}")
    return [seed for first, last in spans for seed in range(first, last + 1)]
