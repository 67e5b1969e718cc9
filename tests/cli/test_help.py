"""Help, examples, `--json` and shell completion of every command; and that they come quickly."""

import json
import re
import shlex
import subprocess
import sys

import pytest
import typer

from fopng.cli import app
from fopng.optim import METHODS_BY_FILE
from fopng.optim.registry import METHODS

HEAVY = {"torch", "numpy", "pandas", "scipy", "altair", "matplotlib"}


def leaves(command, *words):
    """Every command that does something, by its name."""
    for name, member in getattr(command, "commands", {}).items():
        yield from leaves(member, *words, name)
    if not hasattr(command, "commands"):
        yield " ".join(words), command


COMMANDS = dict(leaves(typer.main.get_command(app)))
NOT_QUICK = ("demo", "paper", "data fetch", "watch")
"""Their examples take minutes, the paper's data or a network, or go on until Ctrl-C."""


def example(name):
    [found] = re.findall(r"^Example: (fopng .*)$", COMMANDS[name].help, re.MULTILINE)
    return shlex.split(found)[1:]


def options(name):
    return [each for each in COMMANDS[name].params if each.name != "help"]


def test_every_command_is_there():
    assert {"run", "sweep", "paper", "show", "data list"} <= set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_what_it_is_for_and_gives_an_example_and_what_each_option_is(name):
    line = COMMANDS[name].help.splitlines()[0]
    assert line.endswith(".")
    assert len(line) < 70
    assert [each.name for each in options(name) if not each.help] == []
    assert " ".join(example(name)).startswith(name)
    assert any("--json" in each.opts for each in options(name))


@pytest.mark.parametrize("name", NOT_QUICK)
def test_examples_that_take_long_can_be_read(name):
    COMMANDS[name].make_context(name, example(name)[len(name.split()) :])


@pytest.fixture(scope="module")
def runs(tmp_path_factory, session_cache):
    """A folder where a run has been done and exported, and a sweep is described."""
    folder = tmp_path_factory.mktemp("examples")
    text = 'benchmarks = ["split-digits"]\n[validation]\nseeds = [100]\n[test]\nseeds = [0]\n[methods.sgd]\nlr = [0.1, 0.2]\n'
    (folder / "mine.toml").write_text(text)
    (folder / "mine.py").write_text(
        "import torch\n\n\ndef model_and_batch():\n"
        "    return torch.nn.Linear(3, 2), (torch.ones(4, 3), torch.tensor([0, 1, 1, 0]))\n"
    )
    with pytest.MonkeyPatch.context() as place:
        place.chdir(folder)
        place.setenv("FOPNG_CACHE", str(session_cache))
        for name in ("run", "export"):
            app(example(name), standalone_mode=False)
    return folder


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in NOT_QUICK])
def test_examples_run_and_print_json_alone(name, runs, shared_cache, monkeypatch, command_line):
    monkeypatch.chdir(runs)
    # other tests have modules of that name in other folders
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    code, printed, err = command_line(*example(name))
    assert code == 0, err
    code, out, err = command_line(*example(name), "--json")
    assert code == 0, err
    assert json.loads(out) not in ({}, None)
    assert out != printed


def loaded_by(*words, **environment):
    """Which of the heavy libraries a command line imports, and what it prints."""
    code = f"""
import os, sys
os.environ |= {environment!r}
sys.argv = {["fopng", *words]!r}
from fopng.__main__ import main
try:
    main()
finally:
    print(*({HEAVY!r} & set(sys.modules)), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr.split(), done.stdout


@pytest.mark.parametrize(
    "words", ["--help", "--version", "run --help", "report --help", "data --help", "data fetch --help"]
)
def test_help_imports_nothing_heavy(words):
    heavy, printed = loaded_by(*words.split())
    assert heavy == []
    assert printed.strip()


def test_what_is_heavy_is_seen():
    """Or the test before it could not fail."""
    assert "torch" in loaded_by("methods")[0]


def complete(line):
    """What bash is told for a line whose cursor is at its end."""
    words = line.split(" ")
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_FOPNG_COMPLETE": "complete_bash"}
    heavy, printed = loaded_by(**asked)
    return heavy, printed.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fopng r", ["run", "report", "restore"]),
        ("fopng run --se", ["--seeds", "--set", "--settings"]),
        ("fopng run split-digits fop", ["fopng", "fopng-prefisher", "fopng-k"]),
        ("fopng compare split-digits sgd j", ["joint"]),
        ("fopng run --engine s", ["single"]),
        ("fopng data f", ["fetch"]),
        ("fopng paper --dr", ["--dry-run"]),
    ],
)
def test_the_shell_completes_at_once(line, expected):
    assert complete(line) == ([], expected)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fopng run rotated-d", ["rotated-digits"]),
        ("fopng run rotated-digits ewc --set s", ["strength="]),
        ("fopng data fetch cifar", ["cifar10", "cifar100"]),
        ("fopng ablate l", ["lambda"]),
        ("fopng paper --only l", ["lambda"]),
    ],
)
def test_the_shell_completes(line, expected):
    assert complete(line)[1] == expected


def test_methods_that_the_shell_knows_are_those_of_the_registry():
    assert [*METHODS_BY_FILE, "joint"] == list(METHODS)
