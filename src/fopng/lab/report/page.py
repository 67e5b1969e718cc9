"""The page: one HTML file with its charts, which opens offline and lets no other script run."""

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, final

from fopng.core.extras import from_extra
from fopng.lab.report import words
from fopng.lab.report.charts import charts_of
from fopng.lab.report.looks import COLOURS, place_of
from fopng.lab.report.sections import FAMILIES, Section, family_of, sections_of
from fopng.lab.report.tables import MARKS, Lead, commands_of, leads, table_of
from fopng.lab.runs.result import RunResult
from fopng.lab.runs.scores import scores_of
from fopng.lab.storage import atomic


@final
@dataclass(frozen=True)
class Extra:
    """A section that a caller adds to the page."""

    title: str
    html: str
    """Its content: the caller's own markup, put in as it is."""


def write_report(path: Path, results: Iterable[RunResult], *, title: str, extras: Sequence[Extra] = ()) -> None:
    """Write the page for these results, whole or not at all."""
    atomic.write_text(path, report_html(results, title=title, extras=extras))


def report_html(results: Iterable[RunResult], *, title: str, extras: Sequence[Extra] = ()) -> str:
    """The page: who leads, then every comparison, sweep and ablation with its charts, tables and commands.

    Args:
        results: any results; those that can be compared are shown together.
        title: the page's heading.
        extras: more sections, before the comparisons.
    """
    runs = list({result.config.key: result for result in results}.values())
    sections = sections_of(runs)
    charts = {f"s{number}": charts_of(section) for number, section in enumerate(sections)}
    data = {
        "charts": {f"{name}-{chart.name}": chart.specification for name, some in charts.items() for chart in some},
        "lines": {name: lines_of(section) for name, section in zip(charts, sections, strict=True)},
    }
    scripts = [_bundle(), _file("page.js")]
    page = template("page.html.jinja").render(
        title=title,
        runs=words.counted(len(runs), "run"),
        answers=answers_of(list(zip(charts, sections, strict=True))),
        extras=extras,
        sections=[
            (name, section, table_of(section), charts[name]) for name, section in zip(charts, sections, strict=True)
        ],
        methods=[(method, *key_of(method)) for method in sorted({r.config.method for r in runs}, key=place_of)],
        families=FAMILIES,
        marks=MARKS,
        data=_in_a_script(data),
        style=style(),
        scripts=scripts,
        digests=[_digest(script) for script in scripts],
    )
    return words.encodable(page)


def answers_of(sections: Sequence[tuple[str, Section]]) -> list[tuple[str, list[tuple[str, Section, list[Lead]]]]]:
    """Who leads each comparison, benchmark by benchmark."""
    found: dict[str, list[tuple[str, Section, list[Lead]]]] = {}
    for name, section in sections:
        if section.kind == "comparison":
            found.setdefault(section.config.benchmark, []).append((name, section, leads(section)))
    return list(found.items())


def lines_of(section: Section) -> dict[str, dict[str, Any]]:
    """What a click on a line opens: its command, its runs with their scores, and what they ran on."""
    shown = [score for score in scores_of(section.results) if any(score.of(run) is not None for run in section.results)]
    commands = commands_of(section)
    return {
        label: {
            "command": commands[label],
            "columns": ["seed", "run", "status", *(score.title.lower() for score in shown)],
            "rows": [
                [run.config.seed, run.config.key, run.status, *(score.text(score.of(run)) for score in shown)]
                for run in runs
            ],
            "places": surroundings(runs),
        }
        for label, runs in section.lines.items()
    }


def surroundings(runs: Sequence[RunResult]) -> list[str]:
    """What runs ran on, each once."""
    places = [sorted(run.environment.items()) for run in runs]
    return sorted({", ".join(f"{name} {value}" for name, value in place if value is not None) for place in places})


def key_of(method: str) -> tuple[str, str]:
    """A method's colour, and its marker: hollow where it keeps data of old tasks."""
    place = place_of(method)
    full = family_of(method) == "none"
    return COLOURS[place % len(COLOURS)], ("●■▲◆" if full else "○□△◇")[place // len(COLOURS) % 4]


@cache
def _bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, which does without `eval`."""
    with from_extra("lab", "charts"):
        import vl_convert
    text: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _in_a_script(data: object) -> str:
    """JSON that ends no script and begins no tag."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def template(name: str) -> Any:
    """A template of the report."""
    with from_extra("lab", "the page"):
        import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fopng.lab.report", "template"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"number": words.number, "plain": words.plain, "width": lambda e: 100 * e.half_width(0.95)}
    return environment.get_template(name)


def style() -> str:
    """The style of the pages."""
    return _file("page.css")


def _file(name: str) -> str:
    return resources.files("fopng.lab.report").joinpath("template", name).read_text(encoding="utf-8")
