"""`fopng export` and `restore`: results as small files to commit, and runs from them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fopng.cli.options import JsonOption, OnlyBenchmarks, OnlyMethods, OnlyProtocol
from fopng.cli.output import show_json


def export(
    runs: Annotated[Path, typer.Argument(help="The folder of the runs.")],
    target: Annotated[Path, typer.Argument(help="The folder that the files go into.")],
    benchmark: OnlyBenchmarks = None,
    method: OnlyMethods = None,
    protocol: OnlyProtocol = None,
    as_json: JsonOption = False,
) -> None:
    """Write results into a few small files, beside what is there already: a run that is new replaces an old one."""
    from fopng.cli.results import asked_for, say_written
    from fopng.lab.runs.export import write_bundles
    from fopng.lab.runs.store import load_results

    new = asked_for([runs], benchmark, method, protocol)
    old = load_results([target]) if target.is_dir() else []
    written = write_bundles(target, {result.config.key: result for result in (*old, *new)}.values())
    if as_json:
        show_json(written)
    for path in written:
        say_written(path)


def restore(
    results: Annotated[Path, typer.Argument(help="The folder of exported results, or of runs.")],
    target: Annotated[Path, typer.Argument(help="The folder of runs that they go into.")],
    benchmark: OnlyBenchmarks = None,
    method: OnlyMethods = None,
    protocol: OnlyProtocol = None,
    as_json: JsonOption = False,
) -> None:
    """Put exported results into a folder of runs, where they count as done: what is asked for there goes on from them."""
    from fopng.cli.results import asked_for, say
    from fopng.lab.report.words import counted
    from fopng.lab.runs.store import Store

    found = asked_for([results], benchmark, method, protocol)
    restored = Store(target).take(found)
    if as_json:
        show_json({"restored": restored, "there": len(found) - restored})
    say(f"{counted(restored, 'run', 'runs')} restored in {target}, {len(found) - restored} there already.")
