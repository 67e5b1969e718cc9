"""`fopng sweep`: settings tried on a held-out part, the best of them measured on test."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fopng.cli.commands import Sweep as SweepOptions
from fopng.cli.output import show_json, show_table
from fopng.cli.planned import here, show_counts, time_of
from fopng.cli.results import say, say_written, show_results, write_page
from fopng.cli.work import do_runs, runner_of
from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.findings import Response
from fopng.lab.runs.result import RunResult
from fopng.lab.runs.store import folder_name
from fopng.lab.schedule.runner import raise_for
from fopng.lab.storage import atomic
from fopng.lab.sweep import Sweep, SweepOutcome, chosen_toml, conduct, foresee, read_sweep


def sweep(options: SweepOptions) -> None:
    """Do the sweep, print what was found and write the settings that were chosen."""
    asked = read_sweep(options.file).only(options.benchmark or [], options.method or [])
    if options.dry_run:
        _show_plan(asked, options)
        return
    runner = runner_of(options, keep_going=True)

    def do(configs: Sequence[RunConfig], experiment: str) -> list[RunResult]:
        return do_runs(configs, runner, experiment, again=options.again)

    outcome = conduct(asked, do, options.data_dir)
    _show(outcome, as_json=options.as_json)
    _write(outcome, options.out / "sweeps" / asked.name)
    raise_for(outcome.failed)


def _show_plan(asked: Sweep, options: SweepOptions) -> None:
    seen = foresee(asked, runner_of(options).result, options.data_dir)
    seconds = time_of(options, estimate=options.estimate)(seen.missing)
    show_counts(seen.there, seen.missing, as_json=options.as_json, at_most=seen.at_most, seconds=seconds)
    say(
        f"{len(seen.there)} runs there already, {len(seen.missing)} to do in this round{here(seconds)}; "
        f"the whole sweep is at most {seen.at_most}."
    )


def _show(outcome: SweepOutcome, *, as_json: bool) -> None:
    if as_json:
        show_json(outcome.as_dict())
        return
    columns = ("benchmark", "method", "tried", "refused", "accuracy %", "chosen")
    show_table(columns, [_row(response) for response in outcome.responses], right=columns[2:5])
    if outcome.results:
        show_results(outcome.results, as_json=False)
    for response in outcome.responses:
        for note in response.notes:
            say(f"{response.benchmark} {response.method}: {note}")


def _row(response: Response) -> tuple[str, ...]:
    refused = sum(point.refused is not None for point in response.points)
    counts = (response.benchmark, response.method, str(len(response.points)), str(refused))
    if response.chosen is None:
        return (*counts, "–", "nothing")
    words = ", ".join(f"{name}={value}" for name, value in response.chosen.settings.items())
    return (*counts, f"{100 * response.chosen.accuracy.mean:.2f}", words)


def _write(outcome: SweepOutcome, folder: Path) -> None:
    """The settings that were chosen, a file a benchmark; everything that was found, as JSON; a page."""
    folder.mkdir(parents=True, exist_ok=True)
    for benchmark in outcome.sweep.benchmarks:
        path = folder / f"{folder_name(benchmark)}.toml"
        atomic.write_text(path, chosen_toml(outcome.sweep, benchmark, outcome.responses))
        say_written(path)
    atomic.write_text(folder / "sweep.json", atomic.readable_json(outcome.as_dict()) + "\n")
    say_written(folder / "sweep.json")
    tried = [result for response in outcome.responses for point in response.points for result in point.results]
    write_page(folder / "report.html", [*outcome.results, *tried], title=f"Sweep {outcome.sweep.name}")
