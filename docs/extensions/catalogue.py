"""The catalogue: a page a method, from its section in `methods.md`, its docstring, and the committed results."""

import re
from collections.abc import Sequence
from pathlib import Path

from reference import write
from sphinx.application import Sphinx

from fopng.lab.runs.result import RunResult
from fopng.lab.runs.settings import defaults_of, method_settings
from fopng.lab.runs.store import load_results
from fopng.optim.registry import METHODS, MethodEntry
from reproduction.pages import method_results

RESULTS = "reproduction/results"
"""The folder of committed results, beside that of the documentation."""

SECTION = re.compile(
    r"^## (?P<title>.*?) \(`(?P<name>[a-z-]+)`\)(?P<mark>.*)\n(?P<text>(?:(?!^## ).*\n)*)", re.MULTILINE
)
"""`## Title (`name`)` and what stands below it, to the next such heading."""

PART = re.compile(r"\s\*(Keeps:|Settings:|Costs:|Use it)\*")
"""What a section says in a sentence and a page in a paragraph of its own."""

PAGE = re.compile(r"docs/([a-z-]+)\.md")


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages before any is read, and make `methods.md` the list of them."""
    app.connect("builder-inited", lambda app: write_pages(Path(app.srcdir)))
    app.connect("source-read", _list_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def sections(text: str) -> dict[str, re.Match[str]]:
    """The section of each method, by the method's name."""
    return {found["name"]: found for found in SECTION.finditer(text)}


def write_pages(docs: Path) -> None:
    """Write a page for every method that has a section."""
    committed = docs.parent / RESULTS
    results = load_results([committed]) if committed.is_dir() else []
    folder = docs / "catalogue"
    folder.mkdir(exist_ok=True)
    for name, section in sections((docs / "methods.md").read_text(encoding="utf-8")).items():
        write(folder / f"{name}.md", _page(METHODS[name], section, results))


def _page(entry: MethodEntry, section: re.Match[str], results: Sequence[RunResult]) -> str:
    text = section["text"].strip().replace("](", "](../").replace("](../http", "](http")
    text = PART.sub(r"\n\n**\1**", text).replace(
        "**Costs:**", "**Costs** (in steps of plain SGD, [measured](../performance.md)):"
    )
    measured = method_results(results, entry.name)
    optimizer = entry.optimizer
    blocks = [
        f"# {section['title']} (`{entry.name}`)",
        "*Keeps samples of old tasks.*" if entry.about.keeps_data else "",
        text,
        "## Settings",
        f"Arguments of {{py:class}}`fopng.{optimizer.__name__} <{optimizer.__module__}.{optimizer.__name__}>`, and what `--set` "
        f"takes after `fopng run BENCHMARK {entry.name}`. On a benchmark of the paper its own values stand in for these defaults.",
        _settings(entry),
        *(["## Results", measured] if measured else []),
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _settings(entry: MethodEntry) -> str:
    defaults = defaults_of(entry)
    rows = [
        f"| `{name}` | {f'`{defaults[name]}`' if name in defaults else ''} | {_explained(setting.means)} |"
        for name, setting in method_settings(entry).items()
    ]
    return "\n".join(["| setting | default | |", "| --- | --- | --- |", *rows])


def _explained(text: str) -> str:
    return PAGE.sub(r"[\1](../\1.md)", text.replace("|", "&#124;"))


def _list_pages(app: Sphinx, name: str, source: list[str]) -> None:
    if name != "methods":
        return
    found = sections(source[0])
    first = next(iter(found.values())).start()
    entries = [(METHODS[name].about, section["title"]) for name, section in found.items()]
    rows = [
        f"| [{title}](catalogue/{e.name}.md) | `{e.name}` | {e.year} | {e.paper} | {e.keeps} |" for e, title in entries
    ]
    table = "\n".join(["| method | name | year | by | keeps of old tasks |", "| --- | --- | --- | --- | --- |", *rows])
    pages = "\n".join(f"catalogue/{name}" for name in found)
    listed = f"{table}\n\n```{{toctree}}\n:hidden:\n\n{pages}\n```\n\n"
    introduction = source[0][:first].replace("One section each", "One page each")
    source[0] = introduction + listed + SECTION.sub("", source[0][first:])
