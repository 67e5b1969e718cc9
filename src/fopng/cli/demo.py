"""`fopng demo`: from nothing to a page, on real digits that come with a dependency."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fopng.cli.options import JsonOption
from fopng.cli.run_options import parse_seeds

TITLE = "Eight methods, three streams of tasks, 5,000 handwritten digits"
NEXT = (
    "To forget less and keep no data, begin with fopng-k; fopng and fopng-prefisher are the paper's. "
    "Their settings: fopng methods fopng-k. All methods: fopng methods."
)


def demo(
    seeds: Annotated[
        str, typer.Option("--seeds", metavar="N|LIST", help="How many seeds, or a list such as 0,3,7 or 10-14.")
    ] = "3",
    out: Annotated[Path, typer.Option("--out", help="The folder of the page and of the runs.")] = Path("demo"),
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Processes; one a core when left out.", show_default=False)
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Do finished runs again.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare the paper's seven methods and fopng-k on small versions of its three MNIST benchmarks, in a few minutes."""
    from fopng.cli.machine import cores
    from fopng.cli.results import say, show_results, write_page
    from fopng.cli.work import Means, do_runs
    from fopng.lab.runs.demo import demo_requests

    requests = demo_requests(parse_seeds(seeds))
    configs = [config for request in requests for config in request.configurations()]
    results = do_runs(configs, Means(out=out / "runs", jobs=jobs or cores(), again=again))
    show_results(results, as_json=as_json)
    write_page(out / "report.html", results, title=TITLE)
    say(NEXT)
