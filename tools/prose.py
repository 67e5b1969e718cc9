"""Count and check the words of README and site: `python tools/prose.py`.

Lists the words of each written page, sentences over 25 words, and abbreviations that no page explains.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

README_LINES, README_WORDS, PAGE_WORDS, SITE_WORDS = 120, 900, 1200, 20_000
SENTENCE_WORDS, CELL_WORDS = 25, 12

GENERATED = ("api/", "_build/", "commands.md", "changelog.md", "results/claims.md", "results/tables.md")
"""Written by commands, below docs."""

KNOWN = {
    *(
        "CPU",
        "GPU",
        "CUDA",
        "JSON",
        "TOML",
        "CSV",
        "HTML",
        "SVG",
        "PNG",
        "PDF",
        "HTTP",
        "HTTPS",
        "SHA",
        "URL",
        "API",
        "MIT",
        "NaN",
    ),
    *(
        "MNIST",
        "CIFAR",
        "LoRA",
        "LSTM",
        "ReLU",
        "IDX",
        "DDP",
        "NCCL",
        "NVIDIA",
        "MB",
        "GB",
        "TF",
        "CNN",
        "MLP",
        "YAML",
        "MPS",
    ),
}
"""What a reader who knows PyTorch knows."""

FENCE = re.compile(r"^(```|:::).*?^\1\s*$", re.MULTILINE | re.DOTALL)
MATH = re.compile(r"\$\$.*?\$\$|\$[^$\n]+\$", re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
BLOCK = re.compile(r"<!-- numbers:.*?-->.*?<!-- end -->", re.DOTALL)


def pages() -> list[Path]:
    """The written pages of the site."""
    found = sorted([*DOCS.rglob("*.md"), *DOCS.rglob("*.ipynb")])
    return [page for page in found if not page.relative_to(DOCS).as_posix().startswith(GENERATED)]


def text_of(page: Path) -> str:
    """What is written on a page, without code, formulas, generated numbers and comments."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    text = COMMENT.sub("", FENCE.sub("", BLOCK.sub("", text)))
    text = MATH.sub("x", re.sub(r"^    \S.*$", "", text, flags=re.MULTILINE))
    text = re.sub(r"<[^>]+>|\*\*", "", text)
    return re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)


def count(text: str) -> int:
    """The words of a text: what has a letter or a digit in it."""
    return len([word for word in re.split(r"[\s|]+", text) if re.search(r"\w", word)])


def cells(text: str) -> Iterator[str]:
    """The cells of all tables."""
    for line in text.splitlines():
        if line.startswith("|"):
            yield from (cell.strip() for cell in line.strip("|").split("|"))


def sentences(text: str) -> Iterator[str]:
    """Sentences and entries of lists, tables aside."""
    prose = "\n".join("" if line.startswith(("|", "#")) else line for line in text.splitlines())
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", prose):
        yield from (found.strip() for found in re.split(r"(?<=[.!?:;])\s+", " ".join(block.split())) if found.strip())


def long_sentences(text: str) -> list[str]:
    """Sentences with too many words."""
    return [sentence for sentence in sentences(text) if count(sentence) > SENTENCE_WORDS]


def abbreviations(text: str) -> set[str]:
    """Words of capitals, such as KFAC."""
    return set(re.findall(r"(?<![\w`-])[A-Z][A-Za-z]*[A-Z]{1,}[A-Za-z]*(?![\w`-])", re.sub(r"`[^`]*`", "", text)))


def explained() -> set[str]:
    """Abbreviations that the glossary or a page of a method explains, and names of optimizers."""
    glossary = abbreviations((DOCS / "reference" / "glossary.md").read_text(encoding="utf-8"))
    titles = " ".join(
        page.read_text(encoding="utf-8").split("\n")[0] for page in (DOCS / "reference" / "methods").glob("*.md")
    )
    names = re.findall(r"\(`([a-z-]+)`\)", titles)
    return KNOWN | glossary | abbreviations(titles) | {name.upper() for name in names}


def main() -> None:
    """Print the table."""
    known, total = explained(), 0
    for page in [ROOT / "README.md", *pages()]:
        text = text_of(page)
        words, unknown = count(text), sorted(abbreviations(text) - known)
        total += words if page.parent != ROOT else 0
        print(f"{words:6}  {page.relative_to(ROOT)}" + (f"  undefined: {', '.join(unknown)}" if unknown else ""))
        for sentence in long_sentences(text):
            print(f"        {count(sentence)} words: {sentence}")
    print(f"{total:6}  the site, of at most {SITE_WORDS}")


if __name__ == "__main__":
    main()
