"""The training loop: every method, every benchmark, saved on the way and resumed where it stopped."""

from fopng.lab.engine.loop import SAVE_SECONDS
from fopng.lab.engine.plan import Interrupted, MakeOptimizer, Outcome, Plan
from fopng.lab.engine.precision import PRECISIONS, Precision
from fopng.lab.engine.seeds import Seeds
from fopng.lab.engine.single import train
from fopng.lab.engine.stages import all_at_once, one_by_one

__all__ = [
    "PRECISIONS",
    "SAVE_SECONDS",
    "Interrupted",
    "MakeOptimizer",
    "Outcome",
    "Plan",
    "Precision",
    "Seeds",
    "all_at_once",
    "one_by_one",
    "train",
]
