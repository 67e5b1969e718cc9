"""Numbers, settings and names as people read them."""

import math
import re
from collections.abc import Mapping

from fopng.lab.runs.config import Value
from fopng.lab.runs.scores import Estimate

NONE = "–"
"""In place of a number that there is not."""


def percent(estimate: Estimate) -> str:
    """The mean as a percentage; a dash where there is none."""
    return number(100 * estimate.mean)


def margin(estimate: Estimate, confidence: float) -> str:
    """Half the interval as a percentage; a dash where one seed, or none, gives no interval."""
    half = estimate.half_width(confidence)
    return NONE if math.isnan(half) else f"± {100 * half:.2f}"


def plain(value: float) -> str:
    """A number with as many digits as its size deserves."""
    return number(value, digits=2 if abs(value) < 10 else 0)


def megabytes(value: float) -> str:
    """A number of bytes in millions.

    >>> megabytes(1_250_000.0), megabytes(float("nan"))
    ('1.25', '–')
    """
    return plain(value / 1e6)


def number(value: float, digits: int = 2) -> str:
    """A number with fixed digits; a dash where there is none."""
    return NONE if math.isnan(value) else f"{value:.{digits}f}"


def counted(count: int, one: str, several: str) -> str:
    """A count with its noun.

    >>> counted(1, "run", "runs"), counted(1200, "run", "runs")
    ('1 run', '1,200 runs')
    """
    return f"{count:,} {one if count == 1 else several}"


def setting_words(value: Value) -> str:
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
    """The text with a mark in place of what no encoding can write (half of a character)."""
    return text.encode("utf-8", errors="replace").decode("utf-8")


def shortened(text: str, length: int) -> str:
    """The text, cut where it is longer than this.

    >>> shortened("natural gradient", 9)
    'natural …'
    """
    return text if len(text) <= length else f"{text[: length - 1]}…"


def slug(text: str) -> str:
    """A name for files and identifiers: letters, digits and hyphens.

    >>> slug("The paper's settings")
    'the-papers-settings'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower().replace("'", "")).strip("-")[:60] or "x"
