"""The report: one HTML file that needs nothing else, neither scripts nor a network."""

import math
from collections.abc import Iterable
from pathlib import Path

from fopng import atomic
from fopng.report import figures
from fopng.report.summary import Panel, summarise
from fopng.result import RunResult
from fopng.scores import Estimate


def write_report(path: Path, results: Iterable[RunResult], *, title: str) -> None:
    """Write the page for these results, whole or not at all."""
    atomic.write_text(path, report_html(results, title=title))


def report_html(results: Iterable[RunResult], *, title: str) -> str:
    """The page: for each set of comparable runs a table with intervals and the accuracy curves."""
    import jinja2
    import markupsafe

    panels = summarise(results)
    looks = figures.looks_of([line.label for panel in panels for line in panel.lines])
    drawings = [markupsafe.Markup(_curves(panel, looks, index)) for index, panel in enumerate(panels)]
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fopng", "report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"percent": percent, "margin": margin, "plain": plain, "encodable": encodable}
    template = environment.get_template("report.html.jinja")
    return encodable(template.render(title=title, panels=list(zip(panels, drawings, strict=True)), looks=looks))


def percent(estimate: Estimate) -> str:
    """The mean as a percentage; a dash where there is none."""
    return _number(100 * estimate.mean)


def margin(estimate: Estimate, confidence: float) -> str:
    """Half the interval as a percentage; a dash where one seed, or none, gives no interval."""
    half = estimate.half_width(confidence)
    return "–" if math.isnan(half) else f"± {100 * half:.2f}"


def plain(value: float) -> str:
    """A number with as many digits as its size deserves."""
    return _number(value, digits=2 if abs(value) < 10 else 0)


def encodable(text: str) -> str:
    """The text with a mark in place of what no encoding can write (half of a character)."""
    return text.encode("utf-8", errors="replace").decode("utf-8")


def _number(value: float, digits: int = 2) -> str:
    return "–" if math.isnan(value) else f"{value:.{digits}f}"


def _curves(panel: Panel, looks: dict[str, figures.Look], index: int) -> str:
    return figures.accuracy_curves(panel.lines, looks, f"figure{index}")
