"""Many results in one small file, to be committed: what runs share is said once, and nothing that follows from the rest."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from fopng import atomic
from fopng.config import canonical_json
from fopng.result import STORED, DamagedFileError, RunResult
from fopng.store import Store, folder_name

SUFFIX = ".results.json"

FORMAT = 1

_OWN = ("settings", "seed")


def write_bundles(folder: Path, results: Iterable[RunResult]) -> list[Path]:
    """Write results into a folder, a file for each benchmark, protocol and part; the same results give the same files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, members in _grouped(results, _file_name):
        path = folder / name
        atomic.write_text(path, bundle_text(members))
        written.append(path)
    return written


def bundle_text(results: Iterable[RunResult]) -> str:
    """The text of a bundle: a block for each set of runs that differ in settings and seed alone, a line a run."""
    blocks = []
    for _, members in _grouped(results, _shared_text):
        shared = _shared(members[0])
        runs = ",\n".join(f"   {canonical_json(_own(result))}" for result in members)
        blocks.append(f'  {{"shared": {canonical_json(shared)},\n  "runs": [\n{runs}\n  ]}}')
    return f'{{"format": {FORMAT}, "results": [\n' + ",\n".join(blocks) + "\n]}\n"


def read_bundle(path: Path) -> list[RunResult]:
    """The results of a bundle; `DamagedFileError` when it is none."""
    content = path.read_bytes()
    try:
        members = json.loads(content)
        if members["format"] != FORMAT:
            raise ValueError(f"Expected format {FORMAT}, got {members['format']!r}.")
        return [_result(block["shared"], run) for block in members["results"] for run in block["runs"]]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DamagedFileError(f"Expected a file of results in {path}, got: {error} Export it again.") from error


def load_results(
    paths: Sequence[Path],
    where: Callable[[RunResult], bool] = lambda result: True,
    *,
    damaged: Callable[[DamagedFileError], None] | None = None,
) -> list[RunResult]:
    """Every result in some places, each run once: folders of runs, folders of bundles, single bundles.

    Args:
        paths: where to look.
        where: which results to keep.
        damaged: called for each file that cannot be read, which is then left out; without it the first is raised.
    """
    found: dict[str, RunResult] = {}
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(
                f"Expected a folder of runs or a file of results, got {path}. Name one that exists."
            )
        results = Store(path).results(where, damaged=damaged) if path.is_dir() else []
        files = sorted(path.rglob(f"*{SUFFIX}")) if path.is_dir() else [path]
        for file in files:
            try:
                results += filter(where, read_bundle(file))
            except DamagedFileError as error:
                if damaged is None:
                    raise
                damaged(error)
        found |= {result.config.key: result for result in results}
    return sorted(found.values(), key=_reading_order)


def _shared(result: RunResult) -> dict[str, Any]:
    members = result.as_dict()
    config: Any = members["config"]
    return {
        "config": {name: value for name, value in config.items() if name not in _OWN},
        "environment": members["environment"],
    }


def _own(result: RunResult) -> dict[str, Any]:
    members = result.as_dict()
    own = {name: members[name] for name in STORED if name != "environment"}
    return {**{name: members[name] for name in _OWN}, **own}


def _result(shared: Mapping[str, Any], run: Mapping[str, Any]) -> RunResult:
    config = {**shared["config"], **{name: run[name] for name in _OWN}}
    measured = {name: run[name] for name in STORED if name != "environment"}
    return RunResult.from_dict({"config": config, "environment": shared["environment"], **measured})


def _shared_text(result: RunResult) -> str:
    return canonical_json(_shared(result))


def _file_name(result: RunResult) -> str:
    config = result.config
    part = "-validation" if config.validation else ""
    return f"{folder_name(config.benchmark)}-{folder_name(config.protocol)}{part}{SUFFIX}"


def _reading_order(result: RunResult) -> tuple[str, str, str, str, int, str]:
    config = result.config
    return (
        config.benchmark,
        config.protocol,
        config.method,
        canonical_json(config.settings),
        config.seed,
        config.key,
    )


def _grouped(results: Iterable[RunResult], key: Callable[[RunResult], str]) -> list[tuple[str, list[RunResult]]]:
    ordered = sorted(results, key=lambda result: (key(result), _reading_order(result)))
    return [(name, list(members)) for name, members in groupby(ordered, key)]
