"""The charts of a report as files: SVG, PNG or PDF, without a browser, the same bytes for the same results."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fopng.core.extras import from_extra
from fopng.lab.report import words
from fopng.lab.report.charts import charts_of
from fopng.lab.report.sections import sections_of
from fopng.lab.runs.result import RunResult
from fopng.lab.storage import atomic

LIGHT, DARK = (
    {"ink": "#24292f", "faint": "#6e7781", "line": "#d8dee4"},
    {"ink": "#e6edf3", "faint": "#9aa4af", "line": "#343b44"},
)


def theme(size: int = 13, colours: Mapping[str, str] = LIGHT) -> dict[str, Any]:
    """What charts share beside their specification: letters, colours of axes, and the legend below."""
    ink, faint, line = colours["ink"], colours["faint"], colours["line"]
    text = {
        "labelColor": faint,
        "titleColor": ink,
        "labelFontSize": size,
        "titleFontSize": size,
        "titleFontWeight": "normal",
    }
    return {
        "font": "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif",
        "background": None,
        "view": {"stroke": None},
        "axis": {**text, "labelFlush": False, "gridColor": line, "domainColor": line, "tickColor": line},
        "axisBand": {"grid": False},
        "header": {"labelColor": ink, "labelFontSize": size},
        "legend": {**text, "orient": "bottom", "columns": 3, "symbolStrokeWidth": 2, "labelLimit": 240},
    }


def files_of(results: Iterable[RunResult], kind: str) -> Iterator[tuple[str, bytes]]:
    """The name and the content of each chart as a file of this kind."""
    for number, section in enumerate(sections_of(results), start=1):
        for chart in charts_of(section):
            stem = "-".join(
                (f"{number:02d}", words.slug(section.config.benchmark), words.slug(section.condition), chart.name)
            )
            yield f"{stem}.{kind}", drawn(chart.specification, kind)


def drawn(specification: dict[str, Any], kind: str) -> bytes:
    """A chart as an SVG that follows light and dark, a PNG or a PDF."""
    with from_extra("lab", "charts as files"):
        import vl_convert

    whole = {**specification, "config": {**theme(), **({} if kind == "svg" else {"background": "white"})}}
    if kind == "png":
        return bytes(vl_convert.vegalite_to_png(whole, scale=2))
    if kind == "pdf":
        return bytes(vl_convert.vegalite_to_pdf(whole))
    return numbered(in_the_dark(str(vl_convert.vegalite_to_svg(whole)))).encode()


def numbered(svg: str) -> str:
    """An SVG whose identifiers are counted from 0, however many were drawn before it.

    >>> numbered('<clipPath id="clip7"/><g clip-path="url(#clip7)"/>')
    '<clipPath id="clip0"/><g clip-path="url(#clip0)"/>'
    """
    names = dict.fromkeys(re.findall(r'(?<=id=")(?:clip|gradient_)\d+(?=")', svg))
    new = {name: f"{name.rstrip('0123456789')}{number}" for number, name in enumerate(names)}
    return re.sub(r'(?<=["#])(?:clip|gradient_)\d+(?=["\)])', lambda found: new.get(found[0], found[0]), svg)


def in_the_dark(svg: str) -> str:
    """An SVG whose letters and axes are light where the reader's system is dark."""
    rules = "".join(
        f'[fill="{light}"]{{fill:{dark}}}[stroke="{light}"]{{stroke:{dark}}}'
        for light, dark in zip(LIGHT.values(), DARK.values(), strict=True)
    )
    head, end, rest = svg.partition(">")
    return f"{head}{end}<style>@media (prefers-color-scheme: dark){{{rules}}}</style>{rest}"


def write_figures(folder: Path, results: Iterable[RunResult], *, kind: str) -> list[Path]:
    """Write each chart into a file of its own; their paths.

    Args:
        folder: where they go; made where it is not there.
        results: any results.
        kind: `svg`, `png` or `pdf`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, content in files_of(results, kind):
        atomic.write_bytes(folder / name, content)
        written.append(folder / name)
    return written
