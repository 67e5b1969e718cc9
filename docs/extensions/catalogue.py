"""The catalogue: each method's page gets its settings and its committed results, and the list of methods its table."""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from sphinx.application import Sphinx

from fopng.lab.runs.result import RunResult
from fopng.lab.runs.settings import defaults_of, method_settings
from fopng.lab.runs.store import load_results
from fopng.optim.registry import METHODS, MethodEntry
from reproduction import RESULTS
from reproduction.tables import method_results

FOLDER = "reference/methods/"
TITLE = re.compile(r"^# (.*?) \(`")


def setup(app: Sphinx) -> dict[str, bool]:
    """Look at each page as it is read."""
    app.connect("source-read", _complete)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _complete(app: Sphinx, page: str, source: list[str]) -> None:
    name = page.removeprefix(FOLDER)
    if page == f"{FOLDER}index":
        source[0] = source[0].replace("```{methods}\n```", _list(Path(app.srcdir) / FOLDER))
    elif page.startswith(FOLDER):
        source[0] += f"\n\n{_settings(METHODS[name])}\n\n{_results(name)}\n"


def _list(folder: Path) -> str:
    shown = {name: entry for name, entry in METHODS.items() if (folder / f"{name}.md").exists()}
    rows = [_row(name, entry, (folder / f"{name}.md").read_text(encoding="utf-8")) for name, entry in shown.items()]
    table = "\n".join(["| method | name | year | by | keeps of old tasks |", "| --- | --- | --- | --- | --- |", *rows])
    return f"{table}\n\n```{{toctree}}\n:hidden:\n\n" + "\n".join(shown) + "\n```"


def _row(name: str, entry: MethodEntry, text: str) -> str:
    found = TITLE.match(text)
    about, title = entry.about, found[1] if found else name
    return f"| [{title}]({name}.md) | `{name}` | {about.year} | {about.paper} | {about.keeps} |"


def _settings(entry: MethodEntry) -> str:
    defaults, optimizer = defaults_of(entry), entry.optimizer
    rows = [
        f"| `{name}` | {f'`{defaults[name]}`' if name in defaults else ''} | {setting.means.replace('|', '&#124;')} |"
        for name, setting in method_settings(entry).items()
    ]
    said = (
        f"Arguments of {{py:class}}`fopng.{optimizer.__name__} <{optimizer.__module__}.{optimizer.__name__}>`, and what `--set` "
        f"takes after `fopng run BENCHMARK {entry.name}`. On a benchmark of the paper its own values stand in for these defaults."
    )
    return "\n".join(["## Settings", "", said, "", "| setting | default | meaning |", "| --- | --- | --- |", *rows])


def _results(name: str) -> str:
    measured = method_results(_committed(), name)
    return f"## Results\n\n{measured}" if measured else ""


@cache
def _committed() -> Sequence[RunResult]:
    return load_results([RESULTS]) if RESULTS.is_dir() else []
