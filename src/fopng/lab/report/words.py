"""Numbers, settings and names as people read them."""

import html
import math
import re
from collections.abc import Mapping

from fopng.lab.runs.config import Value

NONE = "–"
"""In place of a number that there is not."""


def number(value: float, digits: int = 2) -> str:
    """A number with fixed digits; a dash where there is none."""
    return NONE if math.isnan(value) else f"{value:.{digits}f}"


def plain(value: float) -> str:
    """A number with as many digits as its size deserves."""
    return number(value, digits=2 if abs(value) < 10 else 0)


def counted(count: int, noun: str) -> str:
    """A count with its noun.

    >>> counted(1, "run"), counted(1200, "run")
    ('1 run', '1,200 runs')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def written(value: Value) -> str:
    """The value of a benchmark's or a run's setting, in words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(map(shown, value)) if isinstance(value, list | tuple) else shown(value)


def shown(value: Value) -> str:
    """A value as short as it can be said; 400 and 400.0 are one value, and None sets no limit.

    >>> shown(400.0), shown(1e-05), shown(None)
    ('400', '1e-05', 'all')
    """
    if value is None:
        return "all"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e9 else f"{value:g}"
    return str(value)


def listed(settings: Mapping[str, Value]) -> str:
    """Settings with their values.

    >>> listed({"lr": 0.1, "fisher_samples": None})
    'lr=0.1, fisher_samples=all'
    """
    return ", ".join(f"{name}={shown(value)}" for name, value in settings.items())


def encodable(text: str) -> str:
    """The text with a mark in place of what no file can hold: half of a character, control characters."""
    return re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", "?", text).encode("utf-8", errors="replace").decode("utf-8")


def slug(text: str) -> str:
    """A name for files and identifiers: letters, digits and hyphens.

    >>> slug("The paper's settings")
    'the-papers-settings'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower().replace("'", "")).strip("-")[:60] or "x"


def escaped(text: str) -> str:
    """A name as Markdown text: no markup, no table cell of its own, no line of its own."""
    marked = re.sub(r"([\\*_{}\[\]#$~!])", r"\\\1", " ".join(encodable(text).split()))
    return html.escape(marked, quote=False).replace("|", "&#124;").replace("`", "&#96;")
