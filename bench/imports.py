"""How long `import fopng` takes beside `import torch`: processor time of fresh interpreters, taken in turn, the least of several.

python bench/imports.py
"""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

TIMES = 5

IMPORTS = {
    "torch": "import torch",
    "fopng": "import fopng",
    "fopng and an optimizer": "import fopng; fopng.FOPNG",
}
"""What each interpreter does; the optimizers are loaded when they are asked for."""


def seconds(code):
    """Processor time of an interpreter that does this alone, with bytecode kept from the round before, as pip leaves it."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def measure(times):
    """The least of several times for each, and its ratio to torch's."""
    least = {name: min(rounds) for name, rounds in _in_turn(times).items()}
    return {name: {"seconds": least[name], "times torch": least[name] / least["torch"]} for name in IMPORTS}


def _in_turn(times):
    found = {name: [] for name in IMPORTS}
    for _ in range(times):
        for name, code in IMPORTS.items():
            found[name].append(seconds(code))
    return found


if __name__ == "__main__":
    result = measure(TIMES)
    for name, row in result.items():
        print(f"{name:24} {row['seconds']:.2f} s   {row['times torch']:.2f} times torch")
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    (folder / "imports.json").write_text(json.dumps(result, indent=1))
