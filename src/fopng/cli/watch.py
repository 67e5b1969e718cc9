"""`fopng watch`: runs as they go, in the terminal or as a page on this machine."""

from __future__ import annotations

import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from rich.console import Console, JustifyMethod
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fopng.cli.commands import Watch
from fopng.cli.output import show_json
from fopng.cli.results import say
from fopng.lab.report.live import COLUMNS, Progress, cells_of, snapshot, summary_of

HOST = "127.0.0.1"


def watch(options: Watch) -> None:
    """Show the runs of a folder until Ctrl-C, or once."""
    if not options.folder.is_dir():
        raise ValueError(f"Expected a folder of runs, got {options.folder}. Begin a run, or name its folder.")
    if options.as_json:
        show_json([run.as_dict() for run in snapshot(options.folder)])
    elif options.serve:
        _serve(options.folder, options.port, options.every)
    else:
        _follow(options.folder, options.every)


def _follow(folder: Path, every: int) -> None:
    console = Console(highlight=False, emoji=False)
    if not console.is_terminal:
        console.print(shown(snapshot(folder)))
        return
    with Live(console=console, auto_refresh=False) as live:
        try:
            while True:
                live.update(shown(snapshot(folder), room=console.height - 6), refresh=True)
                time.sleep(every)
        except KeyboardInterrupt:
            return


def shown(runs: list[Progress], room: int | None = None) -> Table:
    """The runs as a table; where there is no room for all, those under way first."""
    first = sorted(runs, key=lambda run: run.state != "under way")[:room] if room and len(runs) > room else runs
    left_out = f", {len(runs) - len(first)} not shown" if len(first) < len(runs) else ""
    table = Table(box=None, pad_edge=False, header_style="bold", caption=Text(summary_of(runs) + left_out))
    for place, column in enumerate(COLUMNS):
        justify: JustifyMethod = "left" if place < 3 else "right"
        table.add_column(column.replace(", ", "\n"), justify=justify, overflow="fold", no_wrap=place > 0)
    for run in first:
        name, state, _, *others = (Text(cell) for cell in cells_of(run))
        table.add_row(name, state, ProgressBar(total=1.0, completed=run.share, width=10), *others)
    return table


def _serve(folder: Path, port: int, every: int) -> None:
    with server(folder, port, every) as served:
        say(f"Watching {folder} on http://{HOST}:{served.server_address[1]}/ until Ctrl-C.")
        try:
            served.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            return


def server(folder: Path, port: int, every: int) -> ThreadingHTTPServer:
    """A server of the page on this machine alone.

    Args:
        folder: of the runs.
        port: 0 for any that is free.
        every: seconds between two looks.
    """
    from fopng.lab.report.live_page import live_html  # here, because charts take a second to import

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/":
                self.send_error(404)
                return
            body = live_html(snapshot(folder), title=f"Runs in {folder}", seconds=every).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    try:
        return ThreadingHTTPServer((HOST, port), Handler)
    except OSError as error:
        raise ValueError(
            f"Expected a port that is free, got {port} ({error.strerror}). Give another with --port."
        ) from None
