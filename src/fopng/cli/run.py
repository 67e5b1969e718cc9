"""`fopng run`: one method on one benchmark."""

from __future__ import annotations

from pathlib import Path

from fopng.cli.options import (
    AgainOption,
    BatchSizeOption,
    BenchmarkArgument,
    DataDirOption,
    DatasetOption,
    Device,
    DeviceOption,
    Engine,
    EngineOption,
    EpochsOption,
    JobsOption,
    JsonOption,
    MethodArgument,
    ModelOption,
    OutOption,
    Protocol,
    ProtocolOption,
    ScenarioOption,
    SeedsOption,
    SetOption,
    SettingsOption,
    ThreadsOption,
    TrackOption,
    ValidationOption,
    parse_seeds,
)


def run(
    benchmark: BenchmarkArgument,
    method: MethodArgument,
    seeds: SeedsOption = "1",
    assignments: SetOption = None,
    settings: SettingsOption = None,
    epochs: EpochsOption = None,
    batch_size: BatchSizeOption = None,
    dataset: DatasetOption = None,
    scenario: ScenarioOption = None,
    protocol: ProtocolOption = Protocol.MATCHED,
    model: ModelOption = None,
    validation: ValidationOption = False,
    out: OutOption = Path("runs"),
    data_dir: DataDirOption = None,
    engine: EngineOption = Engine.AUTO,
    device: DeviceOption = Device.AUTO,
    threads: ThreadsOption = None,
    jobs: JobsOption = 1,
    again: AgainOption = False,
    track: TrackOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run one method on a benchmark. A run that was interrupted goes on; one that is finished is not done again."""
    from fopng.cli.results import show_results
    from fopng.cli.work import Means, do_runs
    from fopng.request import Request

    request = Request(
        benchmark=benchmark,
        methods=[method],
        seeds=parse_seeds(seeds),
        dataset=dataset,
        scenario=scenario,
        model=model,
        protocol=protocol.value,
        epochs=epochs,
        batch_size=batch_size,
        assignments=assignments or (),
        settings_file=settings,
        validation=validation,
        data_dir=data_dir,
    )
    means = Means(
        out=out,
        data_dir=data_dir,
        device=device,
        threads=threads,
        jobs=jobs,
        again=again,
        tensorboard=track is not None,
    )
    show_results(do_runs(request.configurations(), means), as_json=as_json, out=out)
