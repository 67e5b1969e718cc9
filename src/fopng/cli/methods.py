"""`fopng methods`: what there is to compare, and the settings of each."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from typing import Any

import typer

from fopng.cli.commands import Methods
from fopng.cli.output import show_json, show_table
from fopng.lab.benchmarks import BENCHMARKS, settable
from fopng.lab.runs.settings import defaults_of, find_method, method_settings, wording
from fopng.optim.registry import METHODS, MethodEntry


def methods(options: Methods) -> None:
    """Print the table."""
    if options.name is None:
        _show_all([_describe(entry) for entry in METHODS.values()], options.as_json)
    else:
        _show_one(find_method(options.name), options.as_json)


def setting_names(words: Collection[str]) -> list[str]:
    """What `--set` takes: the settings of the methods and benchmarks among these words, or of all."""
    methods = [METHODS[word] for word in words if word in METHODS] or METHODS.values()
    streams = [BENCHMARKS[word] for word in words if word in BENCHMARKS] or BENCHMARKS.values()
    owners = [*map(method_settings, methods), *map(settable, streams)]
    return list(dict.fromkeys(name for owner in owners for name in owner))


def _show_all(described: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        show_json(described)
        return
    columns = ("method", "paper", "keeps data", "settings", "title")
    rows = [
        (
            each["name"],
            f"{each['paper']} {each['year']}",
            "yes" if each["keeps_data"] else "no",
            str(len(each["settings"])),
            each["title"],
        )
        for each in described
    ]
    show_table(columns, rows, right=("settings",))
    typer.echo("\nThe settings of one: fopng methods NAME")


def _show_one(entry: MethodEntry, as_json: bool) -> None:
    described = _describe(entry)
    if as_json:
        show_json(described)
        return
    about = entry.about
    typer.echo(f"{about.name}: {about.title} ({about.paper}, {about.year}). Of old tasks it keeps: {about.keeps}.\n")
    rows = [(each["name"], each["default"], each["explanation"]) for each in described["settings"]]
    show_table(("setting", "default", "is"), [(name, _word(default), text) for name, default, text in rows])
    typer.echo("\nThe paper's values for a benchmark stand in for these defaults where it has some.")


def _describe(entry: MethodEntry) -> dict[str, Any]:
    defaults = defaults_of(entry)
    return {
        **asdict(entry.about),
        "settings": [
            {
                "name": setting.name,
                "is": wording(setting),
                "default": defaults.get(setting.name, "from the paper"),
                "explanation": setting.means,
            }
            for setting in method_settings(entry).values()
        ],
    }


def _word(default: object) -> str:
    if default is None:
        return "none"
    return f"{default:g}" if isinstance(default, float) else str(default)
