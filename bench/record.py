"""Writing down what a benchmark found, beside what an earlier call found of other parts of it."""

import json
from pathlib import Path

import torch

from fopng.lab.runs.environment import describe_environment


def record_ratios(path: Path, command: str, found: dict[str, object]) -> None:
    """Write JSON: parts that were measured now replace those of the same name."""
    before = json.loads(path.read_text())["ratios"] if path.exists() else {}
    environment = describe_environment(torch.device("cpu"))
    document = {"command": command, "environment": environment, "ratios": before | found}
    path.write_text(json.dumps(document, indent=2) + "\n")
