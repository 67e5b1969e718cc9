"""How many Python functions of fopng's own one `optimizer.step()` goes through, and in how many files.

    python bench/calls.py [--json]

An MLP of two Linear layers in its second task; what a step prepares once (its projector, its inverses) was prepared by the step
before, so that this is what every further step costs. Counted are calls, distinct functions, distinct files, and how deep
they are nested; a generator's or comprehension's turns count as Python counts them. `--first` counts the task's first step instead.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import torch
import torch.nn.functional as F
from torch import nn

import fopng

PACKAGE = str(Path(fopng.__file__).parent)
METHODS: dict[str, Callable[[nn.Module], fopng.ContinualOptimizer]] = {
    "SGD": lambda model: fopng.SGD(model, 0.01),
    "EWC": lambda model: fopng.EWC(model, 0.01),
    "OGD": lambda model: fopng.OGD(model, 0.01, gradients_per_task=8),
    "GPM": lambda model: fopng.GPM(model, 0.01),
    "NCL": lambda model: fopng.NCL(model, 0.01),
    "KroneckerFOPNG": lambda model: fopng.KroneckerFOPNG(model, 0.01),
    "FOPNG": lambda model: fopng.FOPNG(model, 0.01, gradients_per_task=8),
}


class Calls:
    """The calls of fopng's functions while this is entered."""

    def __init__(self) -> None:
        self.count, self.deepest, self._depth = 0, 0, 0
        self.functions: set[tuple[str, int]] = set()

    def __enter__(self) -> "Calls":
        sys.setprofile(self._see)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)

    @property
    def files(self) -> set[str]:
        """Where they are written."""
        return {file for file, _ in self.functions}

    def _see(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(PACKAGE):
            return
        if event == "return":
            self._depth -= 1
            return
        self.count += 1
        self._depth += 1
        self.deepest = max(self.deepest, self._depth)
        self.functions.add((code.co_filename, code.co_firstlineno))


def counted(make: Callable[[nn.Module], fopng.ContinualOptimizer], *, first: bool) -> Calls:
    """What a step of the second task calls."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = make(model)
    loader = [(torch.randn(16, 10), torch.randint(3, (16,))) for _ in range(2)]

    def backward() -> None:
        optimizer.zero_grad()
        x, y = loader[0]
        F.cross_entropy(model(x), y).backward()

    def begin(task: int) -> None:
        optimizer.begin_task(task)
        optimizer.refresh(loader)
        backward()

    begin(0)
    optimizer.step()
    optimizer.end_task(loader)
    begin(1)
    if not first:
        optimizer.step()
        backward()
    with Calls() as calls:
        optimizer.step()
    return calls


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", action="store_true", help="the first step after refresh")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    found = {name: counted(make, first=arguments.first) for name, make in METHODS.items()}
    rows = {
        name: {"calls": c.count, "functions": len(c.functions), "files": len(c.files), "depth": c.deepest}
        for name, c in found.items()
    }
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'':16}{'calls':>8}{'functions':>11}{'files':>7}{'depth':>7}")
    for name, row in rows.items():
        print(f"{name:16}{row['calls']:8}{row['functions']:11}{row['files']:7}{row['depth']:7}")


if __name__ == "__main__":
    main()
