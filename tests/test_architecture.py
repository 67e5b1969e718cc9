"""The layers of the package, read from its imports, and its documentation, read from its classes."""

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fopng

ROOT = Path(fopng.__file__).parent

LAYERS = [
    *("core", "parallel", "gradients", "curvature", "memory", "optim", "integrations"),
    *(
        f"lab/{folder}"
        for folder in (
            *("choices", "storage", "data", "benchmarks", "engine", "runs"),
            *("schedule", "sweep", "report"),
        )
    ),
    "cli",
]
"""A module imports from its own folder and from those before it."""

ALONE = "contrib"
"""Imports from the first folder; nobody imports it."""

OPTIONAL = [
    "ray",
    "optuna",
    "mlxtend",
    "sklearn",
    "jinja2",
    "avalanche",
    "lightning",
    "tensorboard",
    "mlflow",
    "wandb",
]
"""Libraries that are imported when they are asked for."""


def modules() -> dict[str, Path]:
    """Every module by its path in the package."""
    return {path.relative_to(ROOT).with_suffix("").as_posix(): path for path in ROOT.rglob("*.py")}


def folder(module: str) -> str:
    """The folder that a module belongs to: `optim` for `optim/gpm`, `lab/data` for `lab/data/idx`."""
    parts = module.removesuffix("/__init__").split("/")
    return "/".join(parts[: 1 + (parts[0] == "lab")]) if len(parts) > 1 or (ROOT / module).is_dir() else parts[0]


def imports(path: Path) -> set[str]:
    """The folders of the package that a file imports from, at the top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "fopng" else [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {folder(name.removeprefix("fopng.").replace(".", "/")) for name in names if name.startswith("fopng.")}
    return found


INSIDE = [name for name in modules() if "/" in name and name != "lab/__init__"]


def test_only_the_entry_stands_beside_the_folders():
    assert {name for name in modules() if "/" not in name} == {"__init__", "__main__"}


@pytest.mark.parametrize("name", INSIDE)
def test_a_module_imports_only_from_its_folder_and_those_before_it(name):
    found = imports(modules()[name]) - {"__version__"}
    if folder(name) == ALONE:
        assert found <= {"core", ALONE}
    else:
        assert found <= set(LAYERS[: LAYERS.index(folder(name)) + 1])


def test_imports_are_found(tmp_path):
    """The reader above sees every way of importing, or the test before it could not fail."""
    file = tmp_path / "module.py"
    file.write_text(
        "import fopng.cli\nfrom fopng.lab.data.idx import read\nfrom fopng import memory\n"
        "def f():\n    import fopng.lab.engine.loop as t\n"
    )
    assert imports(file) == {"cli", "lab/data", "memory", "lab/engine"}


def test_no_relative_imports():
    for path in modules().values():
        for node in ast.walk(ast.parse(path.read_text())):
            assert not (isinstance(node, ast.ImportFrom) and node.level), path


def public_objects():
    for info in pkgutil.walk_packages([str(ROOT)], "fopng."):
        if info.name.rpartition(".")[2].startswith("_") or info.name.startswith("fopng.integrations"):
            continue
        module = importlib.import_module(info.name)
        yield info.name, module
        for name, thing in vars(module).items():
            own = getattr(thing, "__module__", None) == info.name
            if own and not name.startswith("_") and (inspect.isclass(thing) or inspect.isfunction(thing)):
                yield f"{info.name}.{name}", thing
                for attribute, method in vars(thing).items() if inspect.isclass(thing) else ():
                    function = inspect.isfunction(method) or isinstance(method, (property, classmethod, staticmethod))
                    if function and not attribute.startswith("_"):
                        yield f"{info.name}.{name}.{attribute}", getattr(thing, attribute)


def test_every_public_name_is_documented():
    """An override of a documented method is documented."""
    assert [name for name, thing in public_objects() if not inspect.getdoc(thing)] == []


def test_optional_libraries_are_not_imported_with_the_package():
    code = f"import sys, fopng; print([name for name in {OPTIONAL} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "[]"


LIBRARY = [layer for layer in LAYERS[: LAYERS.index("lab/choices")] if layer != "integrations"]
"""The layers that need nothing but torch and numpy."""

KEPT_OUT = ("typer", "rich", "jinja2", "altair", "pandas", "fopng.lab", "fopng.cli")
"""The laboratory, the command line, and what the extra `lab` brings."""

WITHOUT = f"""
import sys

class KeepOut:
    def find_spec(self, name, path=None, target=None):
        if name.startswith({KEPT_OUT}):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, KeepOut())
"""


def without_the_laboratory(code):
    """Run code in an interpreter that finds neither the laboratory nor its libraries."""
    return subprocess.run([sys.executable, "-c", WITHOUT + code], capture_output=True, text=True, check=False)


def test_the_library_imports_neither_the_laboratory_nor_its_libraries():
    library = [
        f"fopng.{name.removesuffix('/__init__').replace('/', '.')}" for name in modules() if folder(name) in LIBRARY
    ]
    assert len(library) > len(LIBRARY)
    done = without_the_laboratory(
        f"import fopng, importlib\n"
        f"[getattr(fopng, name) for name in fopng.__all__]\n"
        f"[importlib.import_module(name) for name in {library}]"
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", KEPT_OUT)
def test_what_is_kept_out_is_not_found(name):
    """Or the test before it could not fail."""
    done = without_the_laboratory(f"import {name}")
    assert done.stderr.splitlines()[-1] == f"ModuleNotFoundError: No module named {name!r}"


def test_files_stay_small():
    assert {name: n for name, path in modules().items() if (n := len(path.read_text().splitlines())) > 400} == {}


def test_the_walk_through_a_step_never_turns_back() -> None:
    guide = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
    walk = guide.partition("## One step of FOPNG")[2].partition("\n## ")[0]
    links = re.findall(r"^\d+\. \[`(\w+)(?:\.(\w+))?`\]\(src/(fopng/(\w+)/\w+)\.py\)", walk, re.MULTILINE)
    assert 8 <= len(links) <= 12
    folders = [LAYERS.index(package) for *_, package in links]
    assert folders == sorted(folders, reverse=True)
    for thing, member, path, _ in links:
        found = getattr(importlib.import_module(path.replace("/", ".")), thing)
        assert found.__module__ == path.replace("/", "."), thing
        assert not member or member in vars(found), f"{thing}.{member}"
