"""How long imports and `fopng --help` take beside what they cannot do without: processor time of fresh interpreters.

Taken in turn, the least of several.

python bench/imports.py
"""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

TIMES = 5

COMMAND = "import sys; sys.argv = ['fopng', *'{}'.split()]; from fopng.__main__ import main; main()"

BESIDE = {
    "torch": {
        "import fopng": "import fopng",
        "fopng and an optimizer": "import fopng; fopng.FOPNG",
    },
    "typer, rich": {
        "fopng --help": COMMAND.format("--help"),
        "fopng run --help": COMMAND.format("run --help"),
    },
}
"""What each interpreter does, by the libraries that it is held against; the optimizers are loaded when they are asked for."""


def seconds(code):
    """Processor time of an interpreter that does this alone, with bytecode kept from the round before, as pip leaves it."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def measure(times, libraries):
    """The least of several times for what is held against these libraries, and its ratio to theirs."""
    codes = {libraries: f"import {libraries}", **BESIDE[libraries]}
    rounds = [{name: seconds(code) for name, code in codes.items()} for _ in range(times)]
    least = {name: min(each[name] for each in rounds) for name in codes}
    return {name: {"seconds": least[name], "ratio": least[name] / least[libraries]} for name in codes}


if __name__ == "__main__":
    result = {libraries: measure(TIMES, libraries) for libraries in BESIDE}
    for libraries, rows in result.items():
        for name, row in rows.items():
            print(f"{name:24} {row['seconds']:.3f} s   {row['ratio']:.2f} times importing {libraries}")
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    (folder / "imports.json").write_text(json.dumps(result, indent=1))
