"""The notebooks run from top to bottom, and print what they show."""

import os
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from test_documentation import is_shown

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:Kernel is running over TCP")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_tutorial_runs_and_prints_what_it_shows(path, tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    notebook = nbformat.read(path, as_version=4)
    shown = [printed(cell) for cell in notebook.cells]
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    for expected, cell in zip(shown, notebook.cells, strict=True):
        assert is_shown(expected, printed(cell)), cell.source


def printed(cell):
    """What a cell printed, or the text of its value."""
    outputs = cell.get("outputs", [])
    texts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs]
    return "\n".join(texts)
