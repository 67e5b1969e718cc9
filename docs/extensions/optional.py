"""Pages that may be there: `name?` in a list of pages stands for the page where it exists, and for nothing where it does not."""

import re
from pathlib import Path

from sphinx.application import Sphinx

OPTIONAL = re.compile(r"^([a-z/-]+)\?\n", re.MULTILINE)


def setup(app: Sphinx) -> dict[str, bool]:
    """Look before a page is read."""
    app.connect("source-read", _keep_those_that_exist)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _keep_those_that_exist(app: Sphinx, name: str, source: list[str]) -> None:
    docs = Path(app.srcdir)
    source[0] = OPTIONAL.sub(lambda found: f"{found[1]}\n" if (docs / f"{found[1]}.md").exists() else "", source[0])
