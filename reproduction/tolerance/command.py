"""What the command `tolerance` does: it needs torch, NumPy, filelock, rich and typer alone, for machines that have little else."""

from __future__ import annotations

import typer

from fopng.cli.run_options import parse_seeds
from fopng.lab.data.cache import cache_folder
from fopng.lab.schedule.machine import find_device
from reproduction.options import Tolerance
from reproduction.tolerance.cells import Places, cells
from reproduction.tolerance.contenders import CONTENDERS
from reproduction.tolerance.portions import own_data, pack
from reproduction.tolerance.records import missing
from reproduction.tolerance.run import do_all
from reproduction.tolerance.streams import STREAMS


def tolerance(options: Tolerance) -> None:
    """Do the runs that are missing, or pack their data."""
    data_dir = options.data_dir or own_data()
    if options.pack is not None:
        for path in pack(options.pack, data_dir):
            _say(f"Written: {path}")
        return
    cache = options.cache or cache_folder() / "tolerance"
    device = find_device(options.device)
    places = Places(out=options.out, cache=cache, data_dir=data_dir, device=str(device))
    streams, contenders = (
        list(known) if names is None else names.split(",")
        for names, known in ((options.streams, STREAMS), (options.contenders, CONTENDERS))
    )
    wanted = cells(streams, contenders, parse_seeds(options.seeds))
    if options.dry_run:
        _say(f"{len(missing(wanted, places.out))} of {len(wanted)} runs to do.")
    else:
        do_all(wanted, places, jobs=options.jobs, say=_say)


def _say(line: str) -> None:
    typer.echo(line, err=True)
