"""`fopng data`: where the datasets are, getting them, checking them."""

from __future__ import annotations

from typing import Any

import typer

from fopng.cli.commands import DataFetch, DataList, DataPath, DataVerify
from fopng.cli.output import megabytes, show_json, show_table
from fopng.cli.progress import DownloadProgress
from fopng.lab.data.cache import cache_folder
from fopng.lab.data.catalog import DATASETS, Dataset, KnownDataset, find_dataset
from fopng.lab.data.errors import DataError, DatasetMissingError
from fopng.lab.data.fetch import fetch as fetch_dataset
from fopng.lab.data.status import Status, status
from fopng.lab.data.status import verify as verify_dataset


def list_datasets(options: DataList) -> None:
    """Print the table."""
    found = {name: status(dataset, options.data_dir) for name, dataset in DATASETS.items()}
    if options.as_json:
        show_json([_described(DATASETS[name], each) for name, each in found.items()])
        return
    rows = []
    for name, each in found.items():
        facts = _described(DATASETS[name], each)
        where = {
            "missing": f"not here; fopng data fetch {name}",
            "embedded": "in an installed package" if "train" in facts else "returned by a function",
            "other contents": f"{each.place} has other contents; fopng data fetch {name}",
        }
        samples = f"{facts['train']:,} + {facts['test']:,}" if "train" in facts else ""
        size = megabytes(each.size) if each.size else ""
        rows.append((name, samples, str(facts.get("classes", "")), size, where.get(each.state, str(each.place))))
    show_table(("dataset", "train + test", "classes", "size", "where"), rows, right=("train + test", "classes", "size"))


def _described(dataset: Dataset, found: Status) -> dict[str, Any]:
    """What is known of a dataset before it is loaded, and where it is."""
    facts: dict[str, Any] = {"name": dataset.name, "title": dataset.title}
    if isinstance(dataset, KnownDataset):
        known = dataset.contents
        facts |= {"train": known.train, "test": known.test, "image": known.image, "classes": known.classes}
    return {**facts, "state": found.state, "place": found.place, "bytes": found.size}


def fetch(options: DataFetch) -> None:
    """Get them one after another."""
    done: list[dict[str, Any]] = []
    for dataset in [find_dataset(name) for name in options.names]:
        with DownloadProgress(dataset.name) as progress:
            source = fetch_dataset(
                dataset,
                data_dir=options.data_dir,
                mirror=options.mirror,
                again=options.again,
                report=progress.report,
            )
        done.append({"name": dataset.name, "source": source, "place": status(dataset, options.data_dir).place})
    if options.as_json:
        show_json(done)
        return
    for each in done:
        typer.echo(f"{each['name']}: {each['source']}" + (f"\n  {each['place']}" if each["place"] else ""))


def verify(options: DataVerify) -> None:
    """Read every copy, and raise when one is wrong."""
    chosen = [find_dataset(name) for name in options.names or DATASETS]
    checks = [(dataset.name, check) for dataset in chosen for check in verify_dataset(dataset, options.data_dir)]
    unchecked = set(options.names or ()) - {name for name, _ in checks}
    absent = sorted(name for name in unchecked if status(find_dataset(name), options.data_dir).state == "missing")
    if options.as_json:
        show_json([{"name": name, "place": check.place, "problem": check.problem} for name, check in checks])
    elif checks:
        rows = [(name, "wrong" if check.problem else "right", str(check.place)) for name, check in checks]
        show_table(("dataset", "is", "where"), rows)
    problems = [f"  {check.problem}" for _, check in checks if check.problem]
    problems += [f"  {name} is not on this machine. Run: fopng data fetch {name}" for name in absent]
    if problems:
        raise DataError("Expected every copy to be right, got:\n" + "\n".join(problems))


def path(options: DataPath) -> None:
    """Print the folder."""
    name = options.name
    place = cache_folder() if name is None else status(find_dataset(name), options.data_dir).place
    if place is None:
        raise DatasetMissingError(
            f"Expected {name} in a folder of this machine, got none. Run: fopng data fetch {name}"
        )
    if options.as_json:
        show_json({"name": name, "path": place})
    else:
        typer.echo(str(place))
