"""Results as CSV and JSON, for spreadsheets and other programs, and as bundles, to be committed."""

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from fopng.lab.runs import bundle
from fopng.lab.runs.frame import accuracy_frame, frame
from fopng.lab.runs.result import RunResult
from fopng.lab.runs.scores import SCORES
from fopng.lab.runs.store import folder_name
from fopng.lab.storage import atomic


def write_json(path: Path, results: Iterable[RunResult]) -> None:
    """A list of results, each as in its `result.json`."""
    atomic.write_text(path, atomic.readable_json([result.as_dict() for result in results]) + "\n")


def write_matrix_csv(path: Path, results: Iterable[RunResult]) -> None:
    """The accuracy matrices in long form: a row for each (run, after task, on task), the tasks counted from 1."""
    _write_csv(path, accuracy_frame(results))


def write_summary_csv(path: Path, results: Iterable[RunResult]) -> None:
    """A row a run, with its scores; bytes as whole numbers."""
    whole = {score.name: "Int64" for score in SCORES if score.unit == "bytes"}
    _write_csv(path, frame(results).astype(whole))


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


def _write_csv(path: Path, table: pd.DataFrame) -> None:
    table = table.assign(experiments=table["experiments"].map("; ".join))
    text = table.map(_quoted).to_csv(index=False, lineterminator="\n")
    atomic.write_text(path, text)


def _quoted(value: object) -> object:
    """A text that a spreadsheet would take for a formula is quoted, so that opening a file runs nothing."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
