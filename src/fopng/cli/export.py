"""`fopng export` and `restore`: results as small files to commit, and runs from them."""

from __future__ import annotations

from fopng.cli.commands import Export, Restore
from fopng.cli.output import show_json
from fopng.cli.results import asked_for, say, say_written
from fopng.lab.report.words import counted
from fopng.lab.runs.export import write_bundles
from fopng.lab.runs.store import Store, load_results, merged


def export(options: Export) -> None:
    """Write the files, beside what is there already."""
    new = asked_for([options.runs], options.benchmark, options.method, options.protocol)
    old = load_results([options.target]) if options.target.is_dir() else []
    written = write_bundles(options.target, merged([*old, *new]))
    if options.as_json:
        show_json(written)
    for path in written:
        say_written(path)


def restore(options: Restore) -> None:
    """Put results into the folder."""
    found = asked_for([options.results], options.benchmark, options.method, options.protocol)
    restored = Store(options.target).take(found)
    if options.as_json:
        show_json({"restored": restored, "there": len(found) - restored})
    there = len(found) - restored
    say(f"{counted(restored, 'run')} restored in {options.target}, {there} there already.")
