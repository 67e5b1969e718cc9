"""The one training loop: every method, every benchmark, saved as it goes and taken up where it stopped."""

from fopng.train.loop import SAVE_SECONDS, train
from fopng.train.plan import Interrupted, MakeOptimizer, Outcome, Plan
from fopng.train.precision import PRECISIONS, Precision
from fopng.train.seeds import Seeds
from fopng.train.stages import all_at_once, one_by_one

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
