"""The numbers of the documentation: what stands between `<!-- numbers: NAME -->` and `<!-- end -->` is written from results."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from fopng.lab.runs.result import RunResult
from reproduction.tables import TABLES

BLOCK = re.compile(r"(?P<start><!-- numbers: (?P<name>[^ >]+) -->\n).*?(?P<end><!-- end -->)", re.DOTALL)


def pages(root: Path, results: Sequence[RunResult]) -> dict[Path, str]:
    """Every page under a folder that has such blocks, as these results have it be."""
    made = {name: cache(lambda make=make: make(results)) for name, make in TABLES.items()}
    found = [root / "README.md", *sorted((root / "docs").glob("**/*.md"))]
    texts = {path: path.read_text(encoding="utf-8") for path in found}
    return {path: filled(text, made) for path, text in texts.items() if BLOCK.search(text)}


def filled(text: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """A page with its blocks written anew."""

    def block(found: re.Match[str]) -> str:
        if found["name"] not in tables:
            raise ValueError(f"Expected a table among {', '.join(tables)}, got {found['name']!r}. Correct the page.")
        return f"{found['start']}\n{tables[found['name']]()}\n\n{found['end']}"

    return BLOCK.sub(block, text)
