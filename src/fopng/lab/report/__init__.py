"""Reports from results: one self-contained HTML page, Markdown, charts as files, tables for the terminal."""
