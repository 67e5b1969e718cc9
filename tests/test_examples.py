"""Every example runs, alone, in seconds."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

AFTER_TORCHVISION = """
import runpy, sys, torchvision_ops
torchvision_ops.define_missing()
runpy.run_path(sys.argv[1], run_name="__main__")
"""
"""How an example runs whose libraries import torchvision, which may not fit the torch that is here."""

OPTIONAL = {"avalanche_naive": "avalanche", "transformers_lora": "peft"}
"""The examples that need a library of their own, all of which import torchvision."""

FOLDER = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_it_runs_and_says_something(path, tmp_path):
    library = OPTIONAL.get(path.stem)
    if library is not None and importlib.util.find_spec(library) is None:
        pytest.skip(f"needs {library}")
    settings = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    settings["PYTHONPATH"] = str(Path(__file__).parent)
    how = ["-c", AFTER_TORCHVISION] if library is not None else []
    done = subprocess.run(
        [sys.executable, "-W", "error", *how, str(path)],
        cwd=tmp_path,
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
