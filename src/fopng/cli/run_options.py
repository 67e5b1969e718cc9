"""The options of the commands that do runs, as one dataclass."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fopng.cli.options import (
    AddressOption,
    AgainOption,
    BatchSizeOption,
    DataDirOption,
    DatasetOption,
    Device,
    DeviceOption,
    DryRunOption,
    Engine,
    EngineOption,
    EpochsOption,
    EstimateOption,
    FirstTaskRateOption,
    JobsOption,
    JsonOption,
    ModelOption,
    OutOption,
    PrecisionName,
    PrecisionOption,
    Protocol,
    ProtocolOption,
    ScenarioOption,
    SeedsOption,
    SetOption,
    SettingsOption,
    ThreadsOption,
    TrackOption,
    ValidationOption,
)

if TYPE_CHECKING:
    from fopng.lab.runs.config import RunConfig
    from fopng.lab.schedule.runner import Runner


@dataclass(frozen=True, kw_only=True)
class WorkOptions:
    """How runs are done, with the defaults."""

    out: OutOption = Path("runs")
    data_dir: DataDirOption = None
    engine: EngineOption = Engine.AUTO
    address: AddressOption = None
    device: DeviceOption = Device.AUTO
    threads: ThreadsOption = None
    jobs: JobsOption = 1
    again: AgainOption = False
    track: TrackOption = None
    as_json: JsonOption = False

    def runner(self, *, keep_going: bool = False) -> Runner:
        """What does the runs; `keep_going` leaves out those that fail."""
        from fopng.lab.runs.store import Store
        from fopng.lab.schedule.machine import find_device
        from fopng.lab.schedule.runner import Runner

        on_ray = self.engine is Engine.RAY
        if on_ray and self.device is Device.MPS:
            raise ValueError("Expected --device auto, cpu or cuda with --engine ray, got mps.")
        return Runner(
            store=Store(self.out),
            data_dir=self.data_dir,
            engine=self.engine.value,
            address=self.address,
            device=find_device("cpu" if on_ray else self.device.value),
            gpus=None if self.device is Device.AUTO else self.device is Device.CUDA,
            threads=self.threads,
            jobs=self.jobs,
            trackers=tuple(tracker.value for tracker in self.track or ()),
            keep_going=keep_going,
        )


@dataclass(frozen=True, kw_only=True)
class RunOptions(WorkOptions):
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
    dry_run: DryRunOption = False
    estimate: EstimateOption = True

    def configurations(self, benchmark: str, methods: Sequence[str], **more: Any) -> list[RunConfig]:
        """The runs that are asked for."""
        from fopng.lab.runs.request import configurations

        return configurations(
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
            **more,
        )


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
