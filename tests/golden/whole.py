"""Runs through the command line, of some seconds each."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

RUNS = Path(__file__).parent / "runs.json"
COMMANDS = [
    "fopng run split-digits fopng --seeds 2 --engine single --first-task-lr 0.1 --set lr=0.002",
    "fopng run split-digits fopng-k --first-task-lr 0.1 --set tolerance=none --set rehearse=0 --set strength=30",
    "fopng run split-digits gpm --first-task-lr 0.1 --set lr=0.1",
    "fopng run split-digits ewc --first-task-lr 0.1 --set lr=0.05",
    "fopng run split-digits fopng --seeds 3 --engine replicas --first-task-lr 0.1 --set lr=0.002 --set labels=sampled",
    "fopng run split-mnist fopng --epochs 1 --batch-size 20 --first-task-lr 0.05 --set lr=0.002 --precision float64",
]
"""Runs that a unit in the last place does not send elsewhere: FOPNG in float32 at higher rates does not stay near itself."""
MEASURED = ("accuracy", "initial_accuracy", "accuracy_before")


def run(command: str, folder: Path) -> list[dict[str, Any]]:
    """What was measured in each run of a command; the runs are left in `folder`."""
    program, *arguments = command.split()
    line = [
        sys.executable,
        "-m",
        program,
        *arguments,
        "--json",
        "--threads",
        "1",
        "--device",
        "cpu",
        "--out",
        str(folder),
    ]
    done = subprocess.run(line, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}:\n{done.stderr}")
    return [{name: each[name] for name in ("seed", *MEASURED)} for each in json.loads(done.stdout)]


def save(found: dict[str, list[dict[str, Any]]]) -> None:
    """Write what was measured, a command a line; Python's floats are written so that they are read back the same."""
    RUNS.write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in found.items()) + "\n}\n")
