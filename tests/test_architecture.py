"""The layers of the package, read from its imports, and its documentation, read from its classes."""

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import fopng

ROOT = Path(fopng.__file__).parent

LAYERS = {
    "words": ["types", "parameters", "peers", "draws", "atomic", "locks", "state", "randomness", "kernels"],
    "gradients": ["dealing", "factors", "likelihood", "rules", "taps", "asking", "pulling", "proof", "persample"],
    "operators": [
        *[
            "basis",
            "segments",
            "stored",
            "spread",
            "memory",
            "spread_memory",
            "metric",
            "compression",
            "fisher",
            "moments",
        ],
        *["kronecker", "kfac", "subspace", "lowrank", "projection", "growth", "sampling", "samples", "cone"],
    ],
    "methods": ["methods"],
    "tasks": ["data", "benchmarks", "dropout", "models"],
    "running": ["train", "replicas", "observers", "checkpoint", "turns"],
    "results": [
        *["scores", "config", "result", "store", "export", "environment", "settings", "hyperparameters"],
        *["request", "reference", "command", "runs", "together", "waves", "demo", "sweep", "paper", "report"],
        *["findings", "experiments", "claims", "bundle", "publishing", "ablations"],
    ],
    "edges": ["cli", "integrations", "distributed"],
}
"""A module imports from its own layer and from those above it."""

OPTIONAL = [
    "ray",
    "optuna",
    "mlxtend",
    "sklearn",
    "matplotlib",
    "jinja2",
    "avalanche",
    "lightning",
    "tensorboard",
    "mlflow",
    "wandb",
]
"""Libraries that are imported when they are asked for."""


def modules() -> dict[str, Path]:
    """Every module by the name of its part of the package; a folder is one part."""
    return {str(path.relative_to(ROOT).with_suffix("")): path for path in ROOT.rglob("*.py")}


def part(module: str) -> str:
    return module.split("/")[0].split(".")[0]


def imports(path: Path) -> set[str]:
    """The parts of the package that a file imports, at the top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "fopng" else [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {part(name.removeprefix("fopng.")) for name in names if name.startswith("fopng.")}
    return found


def layer_of(name: str) -> str:
    return next(layer for layer, parts in LAYERS.items() if name in parts)


INSIDE = [name for name in modules() if part(name) not in ("__init__", "__main__")]


@pytest.mark.parametrize("name", INSIDE)
def test_a_module_stands_in_the_table(name):
    assert any(part(name) in parts for parts in LAYERS.values())


@pytest.mark.parametrize("name", INSIDE)
def test_a_module_imports_only_what_stands_above_it(name):
    order = list(LAYERS)
    own = layer_of(part(name))
    allowed = {other for layer in order[: order.index(own) + 1] for other in LAYERS[layer]}
    assert imports(modules()[name]) <= allowed


def test_imports_are_found(tmp_path):
    """The reader above sees every way of importing, or the two tests before it could not fail."""
    file = tmp_path / "module.py"
    file.write_text(
        "import fopng.cli\nfrom fopng.data.idx import read\nfrom fopng import store\ndef f():\n    import fopng.train as t\n"
    )
    assert imports(file) == {"cli", "data", "store", "train"}


def test_no_relative_imports():
    for path in modules().values():
        for node in ast.walk(ast.parse(path.read_text())):
            assert not (isinstance(node, ast.ImportFrom) and node.level), path


def public_objects():
    for info in pkgutil.walk_packages([str(ROOT)], "fopng."):
        if info.name.rpartition(".")[2].startswith("_") or part(info.name.removeprefix("fopng.")) == "integrations":
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


def test_files_stay_small():
    assert {name: n for name, path in modules().items() if (n := len(path.read_text().splitlines())) > 400} == {}
