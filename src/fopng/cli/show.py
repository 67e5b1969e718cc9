"""`fopng show`: the runs that are there, and one of them in full."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from fopng.cli.commands import Show
from fopng.cli.output import show_json, show_table
from fopng.lab.benchmarks.registry import listing_order
from fopng.lab.runs.config import plain_text
from fopng.lab.runs.result import DamagedFileError, RunResult, read_result
from fopng.lab.runs.scores import scores_of
from fopng.lab.storage.locks import is_held
from fopng.lab.storage.parsing import read_json


def show(options: Show) -> None:
    """Print the list, or the run."""
    key, out, as_json = options.key, options.out, options.as_json
    if not out.is_dir():
        raise ValueError(f"Expected a folder of runs, got {out}. Run something, or name the folder with --out.")
    folders = sorted(path.parent for path in out.rglob("config.json"))
    if key is None:
        _list(folders, as_json)
        return
    found = [folder for folder in folders if folder.name.startswith(key)]
    if len(found) != 1:
        problem = "none" if not found else f"{len(found)}"
        raise ValueError(
            f"Expected one run whose key begins with {key!r} in {out}, got {problem}. See: fopng show --out {out}"
        )
    _show(found[0], as_json)


def _list(folders: list[Path], as_json: bool) -> None:
    runs = sorted(map(_describe, folders), key=lambda run: listing_order(run["benchmark"]))
    if as_json:
        show_json(runs)
        return
    rows = [
        (
            run["key"],
            run["state"],
            run["accuracy"] or "",
            f"{run['benchmark']} {run['method']} seed {run['seed']}, {run['protocol']}",
        )
        for run in runs
    ]
    show_table(("key", "state", "accuracy", "run"), rows, right=("accuracy",))


def _describe(folder: Path) -> dict[str, Any]:
    try:
        config = read_json(folder / "config.json")
        members = {name: config[name] for name in ("benchmark", "method", "seed", "protocol")}
        for text in members.values():
            plain_text(str(text), "a name")
    except (ValueError, TypeError, KeyError):
        members = {"benchmark": folder.parent.parent.name, "method": folder.parent.name, "seed": "?", "protocol": "?"}
    state, accuracy = _state(folder)
    return {"key": folder.name, "state": state, "accuracy": accuracy, **members, "folder": folder}


def _state(folder: Path) -> tuple[str, str | None]:
    try:
        result = read_result(folder / "result.json")
    except FileNotFoundError:
        return ("under way" if is_held(folder / "lock") else "unfinished"), None
    except DamagedFileError:
        return "damaged", None
    final = result.final_accuracy
    return result.status, None if final != final else f"{100 * final:.2f} %"


def _show(folder: Path, as_json: bool) -> None:
    try:
        result = read_result(folder / "result.json")
    except FileNotFoundError:
        raise ValueError(
            f"Expected a finished run in {folder}, got one that is not. The command that began it goes on with it."
        ) from None
    if as_json:
        show_json(result.as_dict())
        return
    config = result.config
    typer.echo(f"{config.benchmark} {config.method} seed {config.seed}, {config.protocol} protocol, {result.status}")
    typer.echo(f"{folder}\n")
    _show_matrix(result)
    facts = _facts(result)
    typer.echo("")
    show_table(("score", "value"), [(name, _word(value)) for name, value in facts.items()])
    typer.echo("")
    rest = {name: value for name, value in config.as_dict().items() if name not in ("settings", "benchmark_parameters")}
    settings = {**config.settings, **config.benchmark_parameters, **rest}
    show_table(("setting", "value"), [(name, _word(value)) for name, value in settings.items()])


def _show_matrix(result: RunResult) -> None:
    tasks = max(map(len, result.accuracy), default=0)
    columns = ("after task", *(str(task + 1) for task in range(tasks)), "mean of tasks seen")
    rows = []
    for number, (row, mean) in enumerate(zip(result.accuracy, result.average_accuracy, strict=True), start=1):
        rows.append((str(number), *(_percent(value) for value in row), _percent(mean)))
    show_table(columns, rows, right=columns)


def _facts(result: RunResult) -> dict[str, object]:
    shares = {
        score.title: score.text(value) for score in scores_of([result]) if (value := score.of(result)) is not None
    }
    seconds = {f"seconds, {phase}": value for phase, value in result.seconds_by_phase.items()}
    return {**shares, **seconds}


def _percent(value: object) -> str:
    return f"{100 * value:.2f}" if isinstance(value, float) and value == value else "–"


def _word(value: object) -> str:
    if value is None:
        return "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
