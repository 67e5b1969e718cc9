"""Optimizers for continual learning, and the laboratory that compares them."""

from importlib import import_module

from fopng.optim import METHOD_NAMES

__version__ = "0.1.0"

HOMES = {
    "methods": "fopng.optim",
    **dict.fromkeys(METHOD_NAMES, "fopng.optim.optimizers"),
    **dict.fromkeys(("Bernoulli", "Categorical", "Gaussian", "Likelihood"), "fopng.core.likelihood"),
    **dict.fromkeys(("Coverage", "coverage"), "fopng.optim.coverage"),
    "ContinualOptimizer": "fopng.optim.optimizer",
    "Diagnosis": "fopng.optim.diagnostics",
    "HeadChanged": "fopng.optim.replay_base",
    "IllConditioned": "fopng.memory.projection",
    "MemoryFull": "fopng.memory.gradients",
    "NotShared": "fopng.parallel.collectives",
    "PredictTask": "fopng.core.batch",
}
"""The module of each public name."""

__all__ = sorted(HOMES)


def __getattr__(name: str) -> object:
    """Import what is asked for when it is asked for: torch takes a second, and `fopng --help` needs none of it."""
    if name not in __all__:
        raise AttributeError(f"module 'fopng' has no attribute {name!r}")
    home = HOMES[name]
    found: object = import_module(f"{home}.methods") if name == "methods" else getattr(import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
