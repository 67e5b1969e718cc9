"""Many results in one small file, to be committed: what runs share is said once, and nothing that follows from the rest."""

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from fopng.lab.runs.config import canonical_json, plain
from fopng.lab.runs.result import FORMAT, DamagedFileError, RunResult, check_format, check_whole, fingerprint
from fopng.lab.storage.parsing import read_json

SUFFIX = ".results.json"

_OWN = ("settings", "seed")


def bundle_text(results: Iterable[RunResult]) -> str:
    """The text of a bundle: a block for each set of runs that differ in settings and seed alone, a line a run."""
    blocks, kept = [], []
    for _, members in grouped(results, _shared_text):
        shared, own = _shared(members[0]), [_own(result) for result in members]
        runs = ",\n".join(f"   {canonical_json(run)}" for run in own)
        blocks.append(f'  {{"shared": {canonical_json(shared)},\n  "runs": [\n{runs}\n  ]}}')
        kept.append({"shared": shared, "runs": own})
    head = f'{{"format": {FORMAT}, "sha256": "{fingerprint(kept)}", "results": [\n'
    return head + ",\n".join(blocks) + "\n]}\n"


def read_bundle(path: Path) -> list[RunResult]:
    """The results of a bundle; `DamagedFileError` when it is none."""
    try:
        members = read_json(path)
        check_format(members["format"])
        check_whole(members, members["results"])
        return [
            _result(block["shared"], {**run, "format": members["format"]})
            for block in members["results"]
            for run in block["runs"]
        ]
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise DamagedFileError(f"Expected a file of results in {path}, got: {error} Export it again.") from error


def _shared(result: RunResult) -> dict[str, Any]:
    config = {name: value for name, value in result.config.as_dict().items() if name not in _OWN}
    return {"config": config, "environment": plain(result.environment)}


def _own(result: RunResult) -> dict[str, Any]:
    config = result.config.as_dict()
    stored = {name: value for name, value in result.stored().items() if name != "environment"}
    return {**{name: config[name] for name in _OWN}, **stored}


def _result(shared: Mapping[str, Any], run: Mapping[str, Any]) -> RunResult:
    config = {**shared["config"], **{name: run[name] for name in _OWN}}
    return RunResult.from_dict({**run, "config": config, "environment": shared["environment"]})


def _shared_text(result: RunResult) -> str:
    return canonical_json(_shared(result))


def reading_order(result: RunResult) -> tuple[str, str, str, str, int, str]:
    """A key that sorts results by benchmark, protocol, method, settings and seed."""
    config = result.config
    settings = canonical_json(config.settings)
    return config.benchmark, config.protocol, config.method, settings, config.seed, config.key


def grouped(results: Iterable[RunResult], key: Callable[[RunResult], str]) -> list[tuple[str, list[RunResult]]]:
    """Groups of results in the order of their keys, each in reading order."""
    ordered = sorted(results, key=lambda result: (key(result), reading_order(result)))
    return [(name, list(members)) for name, members in groupby(ordered, key)]
