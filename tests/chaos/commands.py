"""Command lines made at random, of words that fit and words that do not: success, or a sentence that says what was expected."""

import random
import shutil
from pathlib import Path

from chaos.damaging import FINISHED, sound
from chaos.laboratory import said, scratch
from chaos.tally import demand, here
from fopng.lab.benchmarks import BENCHMARKS
from fopng.lab.runs.settings import method_settings
from fopng.optim.registry import METHODS

HOSTILE = (
    *(
        "",
        " ",
        "-1",
        "0",
        "1",
        "2",
        "1e400",
        "nan",
        "inf",
        "-inf",
        "1e-3",
        "0.5",
        "1_0",
        "٣",
        "0x10",
        "true",
        "none",
        "all",
    ),
    *(
        "9" * 30,
        "1e30",
        "a,b",
        "1,2",
        ",",
        "1-3",
        "3-1",
        "0-99999999999",
        "=",
        "a=b",
        "lr=",
        "=1",
        "lr=1=2",
        "a.b=1",
        "..",
        ".",
    ),
    *(
        "\n",
        "\t",
        "\x00x",
        "\x1b[31m",
        "‮",
        "é",
        "\ud800",
        "x" * 300,
        "'",
        '"',
        "$HOME",
        "~",
        "*",
        "<script>",
        "{{7*7}}",
        "%s%n",
    ),
    *("nothing:here", "math:pi", "math:", ":x", "os", "fopng.lab:nothing", "null", "[]", "{}", "--", "-", "--help"),
)
"""Values that somebody may type."""

SCENARIOS, ENGINES = ("domain", "task", "class"), ("auto", "single", "replicas", "ray", "gpu")

VALUES = {
    "--seeds": ("1", "2", "0,3", "1-2", "5"),
    "--epochs": ("1", "2", "1e1"),
    "--batch-size": ("1", "10", "1000000000"),
    "--dataset": ("digits", "mnist", "mnist-5k", "cifar10", "fashion-mnist"),
    "--scenario": SCENARIOS,
    "--protocol": ("matched", "printed"),
    "--first-task-lr": ("0.1", "1e-3"),
    "--model": ("mlp", "convnet", "mlp:x"),
    "--precision": ("float32", "float64", "bfloat16", "tf32"),
    "--engine": ENGINES,
    "--device": ("cpu", "auto", "cuda", "mps"),
    "--threads": ("1", "2"),
    "--jobs": ("1", "2", "1000"),
    "--track": ("tensorboard", "wandb", "mlflow"),
    "--out": ("runs", "new", "file", "file/below", "results"),
    "--data-dir": ("runs", "nowhere", "file"),
    "--settings": ("file", "nowhere.toml", "good.toml", "runs"),
    "--experiment": ("mine", "a/b", "comparison"),
    "--page": ("page.html", "file/below.html", "runs"),
    "--benchmark": tuple(BENCHMARKS),
    "--method": tuple(METHODS),
    "--values": ("1e-4,1e-3", "1"),
    "--title": ("Title",),
    "--format": ("html", "md", "csv", "json", "pdf"),
    "--output": ("out.csv", "out.json", "out.md", "file/below.csv", "out.xyz", "runs"),
    "--every": ("1",),
    "--port": ("0", "80"),
}

FLAGS = ("--again", "--json", "--validation", "--dry-run", "--no-estimate", "--matrix", "--estimate")

OFFERED = {
    "run": (*list(VALUES)[:18], "--again", "--json", "--validation"),
    "compare": (*list(VALUES)[:19], "--again", "--json", "--validation"),
    "ablate": (*list(VALUES)[:17], "--page", "--benchmark", "--method", "--values", "--json"),
    "sweep": ("--out", "--engine", "--device", "--jobs", "--threads", "--benchmark", "--method", "--track", "--json"),
    "report": ("--output", "--format", "--benchmark", "--method", "--protocol", "--title", "--matrix", "--json"),
    "export": ("--benchmark", "--method", "--protocol", "--json"),
    "restore": ("--benchmark", "--method", "--protocol", "--json"),
    "show": ("--out", "--json"),
    "methods": ("--json",),
    "benchmarks": ("--json",),
    "data list": ("--data-dir", "--json"),
    "data path": ("--data-dir", "--json"),
    "claims": ("--json",),
    "rnu": ("--json",),
}

CAREFUL = dict.fromkeys(("run", "compare", "ablate", "sweep"), ("--dry-run", "--no-estimate"))
"""Nothing is trained."""


def command(chance: random.Random, place: int) -> None:
    """A command with arguments and options."""
    name = chance.choice([*OFFERED, *["run", "compare", "ablate"] * 2])
    words = [*name.split(), *CAREFUL.get(name, ()), *_arguments(name, chance)]
    for _ in range(chance.choice((0, 1, 1, 2, 3, 6))):
        words += _option(name, chance)
    if name in CAREFUL and chance.random() < 0.6:
        words += ["--set", _assignment(chance)]
    check(words)


def settings(chance: random.Random, place: int) -> None:
    """Settings of methods and benchmarks, right and wrong."""
    method, benchmark = (
        chance.choice(list(METHODS)),
        chance.choice(["split-digits", "rotated-digits", "permuted-digits"]),
    )
    words = ["run", *CAREFUL["run"], benchmark, method]
    for _ in range(chance.randint(1, 4)):
        words += ["--set", _assignment(chance, method)]
    check(words)


def check(words: list[str]) -> None:
    """Success, or a sentence."""
    with scratch() as folder, here(folder):
        shutil.copytree(sound(FINISHED), folder, dirs_exist_ok=True)
        Path("file").write_text("not toml")
        Path("good.toml").write_text("epochs = 1\n")
        code, _, err = said(*words)
        shown = f"{words}: {code} {err[-300:]}"
        demand(code in (0, 1, 2), shown)
        demand("Traceback" not in err and "may be a bug" not in err, shown)
        demand(code == 0 or _tells(err), shown)


def _tells(err: str) -> bool:
    """Whether an error says what was expected, or is one of the command-line library, which names the argument."""
    return "Expected" in err or "Run the command with --help" in err or "Usage" in err


def _arguments(name: str, chance: random.Random) -> list[str]:
    right = {
        "run": (list(BENCHMARKS), list(METHODS)),
        "compare": (list(BENCHMARKS), list(METHODS), list(METHODS)),
        "ablate": (["lambda", "alpha", "fisher-samples"],),
        "sweep": (["good.toml", "file", "nowhere"],),
        "report": (["runs", "results", "nowhere", "file"],),
        "export": (["runs", "results"], ["results", "new", "file"]),
        "restore": (["results", "runs"], ["new", "runs", "file"]),
        "show": (["", "0", "zz"],),
        "methods": (list(METHODS),),
        "benchmarks": (list(BENCHMARKS),),
        "data path": (["digits", "mnist"],),
    }.get(name, ())
    given = [_mixed(values, chance, 0.1) for values in right]
    if chance.random() < 0.1:
        given = given[:-1]
    return given + ([chance.choice(HOSTILE)] if chance.random() < 0.08 else [])


def _option(name: str, chance: random.Random) -> list[str]:
    known = OFFERED[name]
    option = chance.choice(known) if chance.random() < 0.9 else chance.choice([*VALUES, *FLAGS, "--nonsense"])
    if option in FLAGS or option == "--nonsense":
        return [option]
    return [option, _mixed(VALUES[option], chance, 0.35)]


def _assignment(chance: random.Random, method: str | None = None) -> str:
    owner = method or chance.choice(list(METHODS))
    names = [*method_settings(METHODS[owner]), "tasks", "epochs", "batch_size", "classes_per_task", "samples"]
    name = _mixed(names, chance, 0.1)
    return (
        f"{owner}.{name}={_mixed(('1', '0.1', '3'), chance, 0.6)}"
        if chance.random() < 0.1
        else (f"{name}={_mixed(('1', '2', '0.1', '1e-3', 'diagonal', 'kfac', 'compress'), chance, 0.5)}")
    )


def _mixed(values: object, chance: random.Random, wrong: float) -> str:
    return chance.choice(HOSTILE if chance.random() < wrong else list(values))  # type: ignore[call-overload, no-any-return]


KINDS = {"commands": command, "settings of a command": settings}
"""Each kind and its case."""
