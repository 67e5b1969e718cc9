"""The numbers of the documentation: what stands between `<!-- numbers: NAME -->` and `<!-- end -->` is written from results."""

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from fopng.lab.runs.result import RunResult
from reproduction import numbers, tables
from reproduction.pictures import pictures
from reproduction.tolerance.summary import tolerance

TABLES: dict[str, Callable[..., str]] = {
    "claims": tables.claims,
    "comparisons": tables.comparisons,
    "choices": tables.choices,
    "ablations": tables.ablations,
    "finding": numbers.finding,
    "ablation": numbers.ablation,
    "streams": numbers.streams,
    "bench-step": numbers.steps,
    "bench-core": numbers.core,
    "bench-fishers": numbers.fishers,
    "bench-replicas": numbers.replicas,
    "tolerance": tolerance,
}
"""By the first word that a page gives the block; the others are arguments."""

BLOCK = re.compile(r"(?P<start><!-- numbers: (?P<words>[^\n>]+) -->\n).*?(?P<end><!-- end -->)", re.DOTALL)


def pages(root: Path, results: Sequence[RunResult]) -> dict[Path, str]:
    """Every page under a folder that has such blocks, as these results have it be."""

    @cache
    def made(words: str) -> str:
        name, *others = words.split()
        if name not in TABLES:
            raise ValueError(f"Expected a table among {', '.join(TABLES)}, got {name!r}. Correct the page.")
        return TABLES[name](results, *others)

    found = [root / "README.md", *sorted((root / "docs").glob("**/*.md"))]
    texts = {path: path.read_text(encoding="utf-8") for path in found}
    written = {path: filled(text, made) for path, text in texts.items() if BLOCK.search(text)}
    return written | {root / "docs" / "static" / name: text for name, text in pictures(results).items()}


def filled(text: str, made: Callable[[str], str]) -> str:
    """A page with its blocks written anew."""
    return BLOCK.sub(lambda block: f"{block['start']}\n{made(block['words'])}\n\n{block['end']}", text)
