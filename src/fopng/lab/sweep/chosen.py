"""The chosen settings as a TOML file that `fopng run --settings` takes."""

import json
from collections.abc import Mapping, Sequence

from fopng.lab.runs.config import Value
from fopng.lab.runs.findings import Response
from fopng.lab.runs.settings import NOTHING
from fopng.lab.sweep.file import Sweep


def chosen_toml(sweep: Sweep, benchmark: str, responses: Sequence[Response]) -> str:
    """The settings that a sweep chose on one benchmark, a table a method, with the command that uses them."""
    words = {"dataset": sweep.dataset, "scenario": sweep.scenario, "model": sweep.model}
    options = [f"--{name} {value}" for name, value in words.items() if value is not None]
    options += [f"--protocol {sweep.protocol}"] if sweep.protocol != "matched" else []
    options += [f"--precision {sweep.precision}"] if sweep.precision != "float32" else []
    command = " ".join(["fopng run", benchmark, "METHOD --settings THIS_FILE --seeds 5", *options])
    seeds = ", ".join(map(str, sweep.validation_seeds))
    training = {name: getattr(sweep, name) for name in ("epochs", "batch_size", "first_task_lr")}
    shared = {name: value for name, value in training.items() if value is not None}
    lines = [
        f"# Chosen on validation by the sweep {sweep.name} (seeds {seeds}), {sweep.protocol} protocol.",
        f"# {command}",
    ]
    lines += ["", *_members(shared)] if shared else []
    if sweep.benchmark_settings:
        pairs = dict(pair.split("=", 1) for pair in sweep.benchmark_settings)
        lines += ["", "[benchmark]", *_members(pairs)]
    for response in (each for each in responses if each.benchmark == benchmark):
        lines += ["", *_table(sweep, response)]
    return "\n".join(lines) + "\n"


def _table(sweep: Sweep, response: Response) -> list[str]:
    if response.chosen is None:
        return [f"# {response.method}: {' '.join(response.notes)}"]
    settings = {name: response.chosen.settings[name] for name in sweep.names(response.method)}
    found = f"# {100 * response.chosen.accuracy.mean:.2f} % on validation"
    return [f"[{response.method}]  {found}", *_members(settings)]


def _members(values: Mapping[str, Value]) -> list[str]:
    return [f"{name} = {_toml(value)}" for name, value in values.items()]


def _toml(value: Value) -> str:
    """A value as TOML writes it; JSON's texts, numbers and truth values are TOML's too."""
    return json.dumps(NOTHING[0] if value is None else value, ensure_ascii=False)
