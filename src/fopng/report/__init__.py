"""Pages and tables from results: one self-contained HTML file, and a table for the terminal."""

from fopng.report.page import report_html, write_report
from fopng.report.summary import Line, Panel, summarise
from fopng.report.terminal import result_tables

__all__ = ["Line", "Panel", "report_html", "result_tables", "summarise", "write_report"]
