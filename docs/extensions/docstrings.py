"""Our docstrings as reStructuredText: `code` between single backticks, everything else as it is written."""

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

PAGE = re.compile(r"docs/([a-z/-]+)\.md")
SPECIAL = re.compile(r"([\\*|]|(?<=\w)_(?!\w))")


def setup(app: Sphinx) -> dict[str, bool]:
    """Translate each docstring before its sections are read."""
    app.connect("autodoc-process-docstring", _translate, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _translate(app: Sphinx, kind: str, name: str, thing: object, options: Any, lines: list[str]) -> None:
    text = "\n".join(lines)
    lines[:] = "\n\n".join(_paragraph(block, app.srcdir) for block in text.split("\n\n")).split("\n")


def _paragraph(block: str, pages: Path) -> str:
    if ">>>" in block:
        return block
    # a span of code may go over a line's end
    parts = block.split("`")
    if len(parts) % 2 == 0:
        return _plain(block, pages)
    return "".join(_code(part) if k % 2 else _plain(part, pages) for k, part in enumerate(parts))


def _code(text: str) -> str:
    return f"``{text}``" if text.strip() else ""


def _plain(text: str, pages: Path) -> str:
    return PAGE.sub(lambda found: _link(found, pages), SPECIAL.sub(r"\\\1", text))


def _link(found: re.Match[str], pages: Path) -> str:
    page = found[1]
    return f":doc:`docs/{page}.md </{page}>`" if (pages / f"{page}.md").exists() else found[0]
