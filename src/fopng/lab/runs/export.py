"""Results as CSV and JSON, for spreadsheets and other programs, and as bundles, to be committed."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from fopng.lab.runs import bundle
from fopng.lab.runs.config import canonical_json
from fopng.lab.runs.result import RunResult
from fopng.lab.runs.store import folder_name
from fopng.lab.storage import atomic

_WHO = ("benchmark", "dataset", "scenario", "protocol", "method", "settings", "seed", "key")

MATRIX_COLUMNS = (*_WHO, "part", "after_task", "on_task", "accuracy")

SUMMARY_COLUMNS = (
    *_WHO,
    "status",
    "final_accuracy",
    "forgetting",
    "backward_transfer",
    "forward_transfer",
    "learning_accuracy",
    "removed_fraction",
    "compression_error",
    "seconds",
    "peak_memory_bytes",
)


def write_json(path: Path, results: Iterable[RunResult]) -> None:
    """A list of results, each as in its `result.json`."""
    atomic.write_text(path, atomic.readable_json([result.as_dict() for result in results]) + "\n")


def write_matrix_csv(path: Path, results: Iterable[RunResult]) -> None:
    """The accuracy matrices in long form: a row for each (run, after task, on task), the tasks counted from 1."""
    atomic.write_text(path, _csv(MATRIX_COLUMNS, (row for result in results for row in _matrix_rows(result))))


def write_summary_csv(path: Path, results: Iterable[RunResult]) -> None:
    """A row a run, with its scores."""
    atomic.write_text(path, _csv(SUMMARY_COLUMNS, map(_summary_row, results)))


def write_bundles(folder: Path, results: Iterable[RunResult]) -> list[Path]:
    """Files to commit, one for each benchmark, protocol and part; the same results give the same files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, members in bundle.grouped(results, _bundle_name):
        atomic.write_text(folder / name, bundle.bundle_text(members))
        written.append(folder / name)
    return written


def _bundle_name(result: RunResult) -> str:
    config = result.config
    part = "-validation" if config.validation else ""
    return f"{folder_name(config.benchmark)}-{folder_name(config.protocol)}{part}{bundle.SUFFIX}"


def _csv(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    """A text that a spreadsheet would take for a formula is quoted, so that opening a file runs nothing."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def _who(result: RunResult) -> dict[str, object]:
    members = result.as_dict()
    return {**{name: members[name] for name in _WHO}, "settings": canonical_json(members["settings"])}


def _matrix_rows(result: RunResult) -> Iterator[dict[str, object]]:
    who = _who(result)
    for part, matrix in (("test", result.accuracy), ("validation", result.validation_accuracy)):
        for k, row in enumerate(matrix or (), start=1):
            for j, accuracy in enumerate(row, start=1):
                if accuracy is not None:
                    yield {**who, "part": part, "after_task": k, "on_task": j, "accuracy": accuracy}


def _summary_row(result: RunResult) -> dict[str, object]:
    members = {**result.as_dict(), "final_accuracy": result.final_accuracy}
    return {**{name: members[name] for name in SUMMARY_COLUMNS}, **_who(result)}
