"""`fopng demo`: from nothing to a page, on real digits that come with a dependency."""

from __future__ import annotations

from fopng.cli.commands import Demo
from fopng.cli.results import say, show_results, write_page
from fopng.cli.run_options import parse_seeds
from fopng.cli.work import do_runs
from fopng.lab.runs.demo import demo_configurations
from fopng.lab.runs.store import Store
from fopng.lab.schedule.machine import cores, find_device
from fopng.lab.schedule.runner import Runner

TITLE = "Eight methods, three streams of tasks, 5,000 handwritten digits"
NEXT = (
    "To forget less and keep no data, begin with fopng-k; fopng and fopng-prefisher are the paper's. "
    "Their settings: fopng methods fopng-k. All methods: fopng methods."
)


def demo(options: Demo) -> None:
    """Do the runs, print their scores and write the page."""
    runner = Runner(store=Store(options.out / "runs"), device=find_device("auto"), jobs=options.jobs or cores())
    results = do_runs(demo_configurations(parse_seeds(options.seeds)), runner, again=options.again)
    show_results(results, as_json=options.as_json)
    write_page(options.out / "report.html", results, title=TITLE)
    say(NEXT)
