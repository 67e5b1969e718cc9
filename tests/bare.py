"""An environment with the wheel and what it cannot do without, and nothing else; made without a network in two seconds."""

import os
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def make_environment(folder, wheel, libraries):
    """A virtual environment that has the wheel and finds these libraries, with what they need, where they are installed here.

    Returns its folder of programs.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, capture_output=True)
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    pip = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "--disable-pip-version-check"]
    install = [*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    lent = folder / "lent"
    lent.mkdir()
    for name in needed(libraries):
        link(name, lent)
    [site] = [path.parent for path in folder.rglob("fopng") if path.is_dir()]
    (site / "lent.pth").write_text(f"{lent}\n")
    return programs


def needed(libraries):
    """The distributions that pip would install for these, by name."""
    waiting, seen = [Requirement(name) for name in libraries], set()
    while waiting:
        asked = waiting.pop()
        key = (canonicalize_name(asked.name), *sorted(asked.extras))
        if key in seen:
            continue
        seen.add(key)
        with suppress(PackageNotFoundError):  # those that another system needs
            lines = distribution(asked.name).requires or ()
            waiting += [each for each in map(Requirement, lines) if applies(each, asked.extras)]
    return sorted({name for name, *_ in seen})


def applies(requirement, extras):
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))


def link(name, folder):
    """Link what a distribution has installed into a folder."""
    with suppress(PackageNotFoundError):
        found = distribution(name)
        for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            if not (folder / top).exists() and not top.endswith(".pth"):
                (folder / top).symlink_to(Path(found.locate_file(top)).resolve())


def outside():
    """The variables of a user's shell, without those that lead back here."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "FOPNG_"))}
