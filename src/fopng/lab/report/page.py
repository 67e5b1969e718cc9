"""The report: one HTML file that needs nothing else, and no network. It is whole without scripts, handier with them."""

import base64
import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, final

from fopng.core.extras import from_extra
from fopng.lab.analysis.experiments import sort_out
from fopng.lab.report import words
from fopng.lab.report.charts import Chart, Curves
from fopng.lab.report.claims import Finding, amount, counts, interval, judged, owners
from fopng.lab.report.families import Family, family_of
from fopng.lab.report.figures import charts_of, variation_curves
from fopng.lab.report.lines import Line
from fopng.lab.report.looks import DARK_PALETTE, PALETTE, Looks, looks_of
from fopng.lab.report.summary import Panel, panel_of, unique
from fopng.lab.report.svg import MANY, Dress, draw, key
from fopng.lab.report.variations import AblationGroup, Grid, Sweep, ablations_of, sweeps_of
from fopng.lab.runs.result import RunResult
from fopng.lab.runs.scores import Estimate
from fopng.lab.storage import atomic

if TYPE_CHECKING:
    import jinja2

SHADES = 11
"""Of the accuracy matrices: `h0` to `h10` in the style sheet."""

SWEEP_NOTE = "The best that each value allows, whatever the other settings. Bands hold 95 % over seeds."
ABLATION_NOTE = (
    "One setting varied, all others kept. Bands hold 95 % over seeds; a dotted upright line is the paper's value."
)


@final
@dataclass(frozen=True)
class Section:
    """A part of the page: what is compared, swept or ablated, with its figures."""

    name: str
    """Its identifier on the page."""
    content: Panel | Sweep | AblationGroup
    charts: tuple[Chart, ...]
    shown_first: tuple[Line, ...]
    """Those of its lines that no earlier section has: here stand their runs."""

    @property
    def kind(self) -> str:
        """Which part of the template shows it."""
        return {Panel: "comparison", Sweep: "sweep", AblationGroup: "ablation"}[type(self.content)]


def write_report(path: Path, results: Iterable[RunResult], *, title: str, findings: Sequence[Finding] = ()) -> None:
    """Write the page for these results, whole or not at all."""
    atomic.write_text(path, report_html(results, title=title, findings=findings))


def report_html(results: Iterable[RunResult], *, title: str, findings: Sequence[Finding] = ()) -> str:
    """The page: claims with their verdicts, comparisons, sweeps, ablations, and the runs behind every number.

    Args:
        results: any results; those that can be compared are shown together.
        title: the page's heading.
        findings: what became of claims that were judged by these results.
    """
    runs = unique(results)
    sections = sections_of(runs)
    claims = judged(findings)
    methods = {method: index for index, method in enumerate(sorted({run.config.method for run in runs}))}
    lines = [line for section in sections for line in section.shown_first]
    evidence = {line.key: f"r{number}" for number, line in enumerate(lines)}
    dress = Dress(looks_of_sections(sections), methods, evidence)
    environment = _environment(dress)
    script = _file("page.js")
    return words.encodable(
        environment.get_template("page.html.jinja").render(
            title=title,
            sections=sections,
            claims=claims if any(claim.decided for claim in claims) else [],
            verdicts=counts(claims),
            families=_families(methods),
            methods=methods,
            evidence=evidence,
            owners={run: line for line in reversed(lines) for run in line.key},
            runs=len(runs),
            many=MANY,
            script=script,
            script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            page_style=_file("page.css"),
            palette=PALETTE,
            dark_palette=DARK_PALETTE,
        )
    )


def sections_of(results: Sequence[RunResult]) -> list[Section]:
    """The parts of a page, in its order."""
    found = sort_out(results)
    panels = [panel_of(each.results, each.condition) for each in found.comparisons]
    sweeps, ablations = sweeps_of(found.responses), ablations_of(found.ablations)
    sections: list[tuple[Panel | Sweep | AblationGroup, Sequence[Chart]]] = []
    sections += [(panel, charts_of(panel)) for panel in panels]
    sections += [(sweep, variation_curves(sweep.variations, "held-out", SWEEP_NOTE)) for sweep in sweeps]
    sections += [(group, variation_curves(group.variations, "test", ABLATION_NOTE)) for group in ablations]
    seen: set[tuple[str, ...]] = set()
    found_sections = []
    for index, (content, charts) in enumerate(sections):
        fresh = {line.key: line for line in content.lines if line.key not in seen}
        seen |= fresh.keys()
        found_sections.append(Section(f"p{index}", content, tuple(charts), tuple(fresh.values())))
    return found_sections


def shade(mean: float, low: float) -> int:
    """The shade of an accuracy: 0 at `low`, the darkest at 1.

    >>> shade(0.5, 0.5), shade(1.0, 0.5), shade(0.76, 0.5)
    (0, 10, 5)
    """
    return round((SHADES - 1) * min(1.0, max(0.0, (mean - low) / (1 - low))))


def lightest(lines: Iterable[Line]) -> float:
    """Where the shades of a panel begin: the least accuracy, rounded down to a tenth."""
    return _tenth(entry for line in lines for row in line.matrix for entry in row)


def lightest_of_grids(grids: Iterable[Grid]) -> float:
    """Where the shades of a sweep begin."""
    return _tenth(cell.accuracy for grid in grids for row in grid.cells for cell in row if cell is not None)


def _tenth(entries: Iterable[Estimate]) -> float:
    means = [entry.mean for entry in entries if entry.count]
    return min(0.9, math.floor(10 * min(means, default=0.0)) / 10)


def surroundings(line: Line) -> list[str]:
    """What the runs of a line ran on, each once."""
    return sorted(
        {
            ", ".join(f"{name} {value}" for name, value in sorted(run.environment.items()) if value is not None)
            for run in line.runs
        }
    )


def looks_of_sections(sections: Sequence[Section]) -> Looks:
    """A look for every name that something is drawn under."""
    compared = [
        line.label for section in sections if isinstance(section.content, Panel) for line in section.content.lines
    ]
    curves = [chart for section in sections for chart in section.charts if isinstance(chart, Curves)]
    return looks_of(compared + [series.label for chart in curves for series in chart.series])


def _families(methods: Iterable[str]) -> list[tuple[Family, list[str]]]:
    members = [(family, [method for method in methods if family_of(method) is family]) for family in Family]
    return [(family, names) for family, names in members if names]


def _environment(dress: Dress) -> "jinja2.Environment":
    with from_extra("lab", "the page"):
        import jinja2
        import markupsafe

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fopng.lab.report", "template"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "percent": words.percent,
        "margin": words.margin,
        "plain": words.plain,
        "megabytes": words.megabytes,
        "number": words.number,
        "shown": words.shown,
        "shade": shade,
        "lightest": lightest,
        "lightest_of_grids": lightest_of_grids,
        "surroundings": surroundings,
        "counted": words.counted,
        "drawing": lambda chart: markupsafe.Markup(draw(chart, dress)),
        "key": lambda line: markupsafe.Markup(key(dress.looks[line.label], line.family)),
        "series_key": lambda series: markupsafe.Markup(key(dress.looks[series.label], series.line.family)),
        "amount": amount,
        "interval": interval,
        "owners": owners,
    }
    return environment


def _file(name: str) -> str:
    return resources.files("fopng.lab.report").joinpath("template", name).read_text(encoding="utf-8")
