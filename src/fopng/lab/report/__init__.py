"""Pages, tables and figures from results: one self-contained HTML file, Markdown, images, a table for the terminal."""

from fopng.lab.report.lines import Line
from fopng.lab.report.markdown import report_markdown, write_markdown
from fopng.lab.report.page import report_html, write_report
from fopng.lab.report.static import write_figures, write_pdf
from fopng.lab.report.summary import Panel, summarise
from fopng.lab.report.terminal import result_tables

__all__ = [
    "Line",
    "Panel",
    "report_html",
    "report_markdown",
    "result_tables",
    "summarise",
    "write_figures",
    "write_markdown",
    "write_pdf",
    "write_report",
]
