"""The methods without a model, `fopng.methods.GPM(threshold=0.9)`: settings and pure functions."""

from importlib import import_module
from typing import Any

from fopng.optim import METHOD_NAMES, METHODS_BY_FILE
from fopng.optim.method import Method

ALL: dict[str, type[Method[Any, Any]]] = {
    name: getattr(import_module(f"fopng.optim.{where.partition('.')[0]}"), name)
    for where, name in zip(METHODS_BY_FILE.values(), METHOD_NAMES, strict=True)
}
"""Every method by the name of its class."""

globals().update(ALL)

__all__ = ["ALL", *METHOD_NAMES]
