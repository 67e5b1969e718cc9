"""The figures of a page as files for papers and slides: PNG, SVG or PDF, the same bytes for the same results."""

import io
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fopng.core.extras import from_extra
from fopng.lab.report.looks import Looks
from fopng.lab.report.page import Section, looks_of_sections, sections_of
from fopng.lab.report.plots import one_line, plot, plot_grids, plot_matrices
from fopng.lab.report.summary import Panel, unique
from fopng.lab.report.variations import Sweep
from fopng.lab.report.words import slug
from fopng.lab.runs.result import RunResult
from fopng.lab.storage import atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METADATA: dict[str, dict[str, None]] = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
"""What would make two files of the same figure differ."""


def write_figures(folder: Path, results: Iterable[RunResult], *, kind: str) -> list[Path]:
    """Write each figure into a file of its own; their paths.

    Args:
        folder: where they go; made where it is not there.
        results: any results.
        kind: `png` or `svg`.
    """
    sections = sections_of(unique(results))
    looks = looks_of_sections(sections)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with _plain_matplotlib():
        for number, section in enumerate(sections, start=1):
            for name, figure in _figures(section, looks):
                stem = "-".join((f"{number:02d}", slug(section.content.title), slug(section.content.condition), name))
                path = folder / f"{stem}.{kind}"
                atomic.write_bytes(path, _bytes(figure, kind))
                written.append(path)
    return written


def write_pdf(path: Path, results: Iterable[RunResult]) -> None:
    """Write all figures into one document, each on a page of its own."""
    with from_extra("lab", "figures as files"):
        from matplotlib.backends.backend_pdf import PdfPages

    sections = sections_of(unique(results))
    looks = looks_of_sections(sections)
    file = io.BytesIO()
    with _plain_matplotlib(), PdfPages(file, metadata=METADATA["pdf"]) as pages:
        for section in sections:
            for _, figure in _figures(section, looks):
                figure.suptitle(one_line(f"{section.content.title}, {section.content.condition}"), fontsize=9)
                pages.savefig(figure)
    atomic.write_bytes(path, file.getvalue())


def _figures(section: Section, looks: Looks) -> Iterator[tuple[str, "Figure"]]:
    for chart in section.charts:
        yield chart.name, plot(chart, looks)
    if isinstance(section.content, Panel) and any(line.matrix for line in section.content.lines):
        yield "matrices", plot_matrices([line for line in section.content.lines if line.matrix])
    if isinstance(section.content, Sweep) and section.content.grids:
        yield "grids", plot_grids(section.content.grids)


def _bytes(figure: "Figure", kind: str) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format=kind, dpi=200, metadata=METADATA[kind])
    return file.getvalue()


@contextmanager
def _plain_matplotlib() -> Iterator[None]:
    """Matplotlib without what differs from one machine or one moment to another."""
    with from_extra("lab", "figures as files"):
        import matplotlib as mpl

    # A name is a text: a dollar in it begins no formula.
    settings: dict[Any, Any] = {
        "svg.hashsalt": "fopng",
        "svg.fonttype": "none",
        "pdf.fonttype": 42,
        "font.size": 9,
        "text.parse_math": False,
    }
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()
        mpl.rcParams.update(settings)
        # A letter that the font does not have is drawn as a box.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield
