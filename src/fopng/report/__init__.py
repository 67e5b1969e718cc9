"""Pages and tables from results: one self-contained HTML file, and a table for the terminal."""

from fopng.report.lines import Line
from fopng.report.page import report_html, write_report
from fopng.report.summary import Panel, summarise
from fopng.report.terminal import result_tables

__all__ = ["Line", "Panel", "report_html", "result_tables", "summarise", "write_report"]
