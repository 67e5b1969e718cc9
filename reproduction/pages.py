"""The numbers of the documentation: what stands between `<!-- numbers: NAME -->` and `<!-- end -->` is written from results."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from fopng.lab.runs.result import RunResult
from reproduction import study, tables

MNIST = {"split-mnist": "Split", "rotated-mnist": "Rotated", "permuted-mnist": "Permuted"}
CIFAR = {"split-cifar10": "Split-CIFAR10", "split-cifar100": "Split-CIFAR100"}

TABLES: dict[str, Callable[[tables.Results], str]] = {
    "claims": tables.claims,
    "comparisons": tables.comparisons,
    "choices": tables.choices,
    "ablations": tables.ablations,
    "mnist": tables.overview(MNIST, ("matched", "printed", "tuned")),
    "cifar": tables.overview(CIFAR, ("matched", "tuned")),
    "default": study.at_default,
    "tuned-split-cifar10": study.tuned("split-cifar10"),
    "tuned-split-cifar100": study.tuned("split-cifar100"),
}
"""By the name that a page gives the block."""

BLOCK = re.compile(r"(?P<start><!-- numbers: (?P<name>[^ >]+) -->\n).*?(?P<end><!-- end -->)", re.DOTALL)


def pages(root: Path, results: Sequence[RunResult]) -> dict[Path, str]:
    """Every page under a folder that has such blocks, as these results have it be."""
    made = {name: cache(lambda make=make: make(results)) for name, make in TABLES.items()}
    found = [root / "README.md", *sorted((root / "docs").glob("**/*.md"))]
    texts = {path: path.read_text(encoding="utf-8") for path in found}
    return {path: filled(text, made) for path, text in texts.items() if BLOCK.search(text)}


def filled(text: str, made: Mapping[str, Callable[[], str]]) -> str:
    """A page with its blocks written anew."""

    def block(found: re.Match[str]) -> str:
        if found["name"] not in made:
            raise ValueError(f"Expected a table among {', '.join(made)}, got {found['name']!r}. Correct the page.")
        return f"{found['start']}\n{made[found['name']]()}\n\n{found['end']}"

    return BLOCK.sub(block, text)
