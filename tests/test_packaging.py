"""The wheel and the sdist: what is in them, what they ask for, and that what is installed from them works."""

import ast
import json
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import HeaderParser
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from bare import make_environment, outside

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """An sdist, and the wheel that is made from it."""
    if find_spec("build") is None or find_spec("hatchling") is None:
        pytest.skip("needs build and hatchling: the group integrations")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    [wheel], [sdist] = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def test_the_wheel_holds_the_package_with_its_types_and_files_and_nothing_else(built):
    with zipfile.ZipFile(built[0]) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    source = ROOT / "src"
    files = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=False)
    expected = {str(Path(name).relative_to("src")) for name in files.stdout.split() if (ROOT / name).exists()}
    if not expected:
        # not a checkout: an unpacked sdist
        found = [path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        expected = {str(path.relative_to(source)) for path in found}
    assert expected <= names
    assert "fopng/py.typed" in names
    assert {name for name in names - expected if not name.endswith(".py")} == set()


def test_the_sdist_can_be_tested(built):
    with tarfile.open(built[1]) as sdist:
        parts = {name.split("/")[1] for name in sdist.getnames() if "/" in name}
    folders = {"src", "tests", "docs", "examples", "bench", "reproduction"}
    assert folders | {"Makefile", "constraints.txt", "LICENSE"} <= parts


def requirements(built):
    with zipfile.ZipFile(built[0]) as wheel:
        [name] = [name for name in wheel.namelist() if name.endswith("/METADATA")]
        found = HeaderParser().parsestr(wheel.read(name).decode())
    return found.get_all("Requires-Dist"), set(found.get_all("Provides-Extra"))


def test_every_extra_is_offered(built):
    assert requirements(built)[1] == set(PROJECT["optional-dependencies"])


def imported():
    """Every library that the package imports, at the top of a module or when it is asked for."""
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.split(".")[0])
    return {name for name in found - sys.stdlib_module_names if name != "fopng"}


NAMES = {
    **{"scikit-learn": "sklearn", "pillow": "PIL", "avalanche-lib": "avalanche", "mlflow-skinny": "mlflow"},
    "vl-convert-python": "vl_convert",
}
UNSEEN = {"scipy", "alembic", "sqlalchemy", "transformers", "peft", "tensorboard"}
"""What others import for us."""


def named(lines):
    words = [line.split(";")[0].split(">")[0].split("=")[0].split("<")[0].strip() for line in lines]
    return {NAMES.get(word, word) for word in words}


def test_it_asks_for_what_it_imports_and_for_nothing_else(built):
    core = named(line for line in requirements(built)[0] if "extra ==" not in line)
    extras = named(line for line in requirements(built)[0] if "extra ==" in line)
    assert core <= imported()
    assert extras - UNSEEN <= imported()
    # that come with a torch for GPUs, with jinja2, with the type checker
    assert imported() <= core | extras | {"triton", "markupsafe", "_typeshed"}


def test_the_optimizers_need_three_libraries(built):
    assert named(line for line in requirements(built)[0] if "extra ==" not in line) == {"torch", "numpy", "safetensors"}


def test_an_extra_of_the_laboratory_brings_it():
    brings = {name for name, lines in PROJECT["optional-dependencies"].items() if "fopng[lab]" in lines}
    assert brings == set(PROJECT["optional-dependencies"]) - {"lab", "avalanche", "lightning", "transformers"}


@pytest.fixture(scope="module")
def bare(built, tmp_path_factory):
    """Run a program in an environment with the wheel and the libraries that it cannot do without."""
    folder = tmp_path_factory.mktemp("bare")
    programs = make_environment(folder / "environment", built[0], named(PROJECT["dependencies"]))
    environment = outside() | {"OMP_NUM_THREADS": "1"}

    def run(program, *arguments):
        command = [str(programs / program), *arguments]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)

    return run


TRAINING = """
import json
import torch
import fopng
from torch.nn.functional import cross_entropy

torch.manual_seed(0)
inputs = torch.randn(40, 16, 8)
tasks = [[(x, x[:, part].argmax(1)) for x in inputs] for part in (slice(4), slice(4, 8))]
makers = {
    "OGD": lambda model: fopng.OGD(model, lr=0.1),
    "FOPNG": lambda model: fopng.FOPNG(model, lr=1e-2),
    "KroneckerFOPNG": lambda model: fopng.KroneckerFOPNG(model),
}


def loss(model, task):
    with torch.no_grad():
        return sum(cross_entropy(model(x), y).item() for x, y in task) / len(task)


fell = {}
for name, make in makers.items():
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    optimizer = make(model)
    for number, task in enumerate(tasks):
        optimizer.begin_task(number)
        before = loss(model, task)
        for _ in range(4):
            optimizer.refresh(task)
            for x, y in task:
                optimizer.zero_grad()
                cross_entropy(model(x), y).backward()
                optimizer.step()
        optimizer.end_task(task)
        fell.setdefault(name, []).append(before - loss(model, task))
print(json.dumps({"file": fopng.__file__, "fell": fell}))
"""


def test_the_bare_wheel_trains(bare, tmp_path):
    """Two tasks with three methods, where nothing is installed but the wheel and what it needs."""
    done = bare("python", "-W", "error", "-c", TRAINING)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert not Path(said["file"]).is_relative_to(ROOT)
    assert set(said["fell"]) == {"OGD", "FOPNG", "KroneckerFOPNG"}
    assert all(fall > 0.1 for falls in said["fell"].values() for fall in falls), said["fell"]


@pytest.mark.parametrize("command", [["fopng"], ["fopng", "--version"], ["python", "-m", "fopng", "methods"]])
def test_the_command_of_the_bare_wheel_says_what_to_install(bare, command):
    done = bare(*command)
    assert (done.returncode, done.stdout) == (2, "")
    wanted = "Expected the package typer for the command, got none. Install it with: pip install 'fopng[lab]'"
    assert done.stderr == f"fopng: {wanted}\n"


@pytest.mark.parametrize("module", ["report.tables", "schedule.runner"])
def test_the_laboratory_of_the_bare_wheel_says_what_to_install(bare, module):
    done = bare("python", "-c", f"import fopng.lab.{module}")
    message = "Expected the package rich for the laboratory, got none. Install it with: pip install 'fopng[lab]'"
    assert done.stderr.splitlines()[-1] == f"fopng.core.extras.LibraryMissing: {message}"


def test_what_is_installed_from_the_wheel_works(built, tmp_path):
    """In a folder of its own; that an empty environment is enough shows `make package`."""
    place = tmp_path / "site"
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(place), str(built[0])]
    subprocess.run([sys.executable, *install], check=True, capture_output=True)
    environment = {name: value for name, value in os.environ.items() if name != "FOPNG_DATA"}
    environment |= {"PYTHONPATH": str(place), "OMP_NUM_THREADS": "1"}

    def run(*arguments, code=0):
        done = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
        return done.stderr if code else done.stdout

    assert run("-c", "import fopng; print(fopng.__file__)").startswith(str(place))
    assert "Clone the repository" in run("-m", "fopng", "paper", "--dry-run", code=2)
    run("-m", "fopng", "run", "split-digits", "fopng", "--epochs", "1", "--set", "tasks=2", "--out", "runs")
    run("-m", "fopng", "report", "runs", "-o", "page.html")
    assert (tmp_path / "page.html").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("libraries", "name", "most"),
    [("torch", "import fopng", 0.3), ("torch", "fopng and an optimizer", 1.3), ("typer, rich", "fopng --help", 1.5)],
)
def test_what_is_imported_takes_hardly_longer_than_what_it_needs(libraries, name, most, monkeypatch):
    """Of processor time, the least of a few fresh interpreters each, taken in turn (`bench/imports.py`)."""
    monkeypatch.syspath_prepend(ROOT / "bench")
    imports = import_module("imports")
    for times in (2, 5):  # once more where the machine was busy
        if (ratio := imports.measure(times, libraries)[name]["ratio"]) < most:
            break
    assert ratio < most
