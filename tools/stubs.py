"""Write the stubs: `python tools/stubs.py`, after a setting or a method has changed.

The optimizers and the list of methods are made when fopng is imported. A type checker does not run that, so it reads stubs that
stand beside the modules.
"""

from collections.abc import Iterable
from inspect import Parameter, formatannotation
from pathlib import Path

import fopng
from fopng.optim.make_optimizer import signature_of
from fopng.optim.methods import ALL

PACKAGE = Path(__file__).parents[1] / "src" / "fopng"
HEAD = '"""Written by `tools/stubs.py`."""\n\n'
USED = """\
from typing import Literal

import torch
from torch import nn

from fopng.core.batch import Predict
from fopng.core.likelihood import Likelihood
from fopng.memory.probe import ProbeKind
from fopng.optim.first_task import FirstTask
from fopng.optim.groups import Groups
from fopng.optim.optimizer import ContinualOptimizer
"""
ALIASES = {
    "model": "nn.Module",
    "first_task": "FirstTask",
    "predict": "Predict | None",
    "likelihood": "Likelihood | None",
    "groups": "Groups | None",
    "probe": "ProbeKind",
    "generator": "torch.Generator | None",
}
"""The types of what every optimizer takes, as they are imported."""


def stubs() -> dict[Path, str]:
    """The text of each stub."""
    table = "dict[str, type[{}]]\n"
    return {
        PACKAGE / "__init__.pyi": HEAD + _imports(fopng.HOMES.items()) + "\n__version__: str\nHOMES: dict[str, str]\n",
        PACKAGE / "optim" / "methods.pyi": HEAD
        + "from typing import Any\n\n"
        + _imports([("Method", "fopng.optim.method"), *((name, own.__module__) for name, own in ALL.items())])
        + "\nALL: "
        + table.format("Method[Any, Any]"),
        PACKAGE / "optim" / "optimizers.pyi": HEAD
        + USED
        + "".join(_optimizer(name) for name in ALL)
        + "\nALL_OPTIMIZERS: "
        + table.format("ContinualOptimizer"),
    }


def _imports(homes: Iterable[tuple[str, str]]) -> str:
    lines = [f"from {home} import {name} as {name}" for name, home in homes]
    return "\n".join(sorted(lines, key=lambda line: (line.split()[1], line))) + "\n"


def _optimizer(name: str) -> str:
    given = [_written(own) for own in signature_of(ALL[name]).parameters.values()]
    arguments = ["self", *given[:2], "*", *given[2:]]
    lines = "".join(f"        {each},\n" for each in arguments)
    return f"\nclass {name}(ContinualOptimizer):\n    def __init__(\n{lines}    ) -> None: ...\n"


def _written(own: Parameter) -> str:
    kind = ALIASES.get(own.name) or formatannotation(own.annotation)
    default = "" if own.default is Parameter.empty else f" = {own.default!r}"
    return f"{own.name}: {kind}{default}".replace("'", '"')


if __name__ == "__main__":
    for path, text in stubs().items():
        path.write_text(text, encoding="utf-8")
