"""Every method with three seeds side by side: the final weights, and what was measured."""

import json
from pathlib import Path
from typing import Any

from torch import Tensor

METHODS = (
    *(
        "sgd",
        "adam",
        "ewc",
        "fng",
        "ogd",
        "fopng",
        "fopng-prefisher",
        "ong",
        "natural-ogd",
        "si",
        "mas",
        "lwf",
        "er",
        "gem",
    ),
    *("a-gem", "online-ewc", "fopng-k", "ncl", "gpm", "sgp"),
)
"""By their names on the command line."""

VARIANTS: dict[str, dict[str, Any]] = {
    "fopng, kfac": {"metric": "kfac"},
    "fopng, orthogonal": {"projection": "orthogonal", "labels": "expected"},
    "fopng, compress": {"max_directions": 6, "when_full": "compress"},
    "fopng-prefisher, empirical": {"prefisher": "empirical"},
    "natural-ogd, full": {"metric": "full"},
    "ncl, diagonal": {"metric": "diagonal"},
}
"""Settings beside the small ones; the method is what stands before the comma."""

NAMES = (*METHODS, *VARIANTS)
SEEDS = (0, 1, 2)
TOLERANCE = 1e-12
TOLERANCES = {
    # F_new of 20 samples is all but its damping in most of 154 directions: its inverse amplifies a last bit to 2e-11
    "natural-ogd, full": 2e-10,
    # G (G^T G) / k has the square of G's condition number: 2e-12
    "fopng-prefisher, empirical": 2e-11,
    # the Gram matrix of dependent gradients, damped by no more than rounding: 7e-13
    "fopng, orthogonal": 1e-11,
    # the same Gram matrix, damped as printed: 1.5e-13
    "fopng": 3e-12,
}
"""About ten times what a last bit becomes (`record.py --sensitivity`), where that is more than `TOLERANCE`."""

MEASURED = ("accuracy", "initial_accuracy", "accuracy_before")


def trained(name: str, folder: Path) -> tuple[Tensor, dict[str, list[Any]]]:
    """The final weights `[R, p]` and the accuracies of each run.

    The only place that knows how runs are made and done side by side: imported here since the names may change.
    """
    from replicas.pairs import plans, side_by_side
    from small_runs import stream

    method = name.partition(",")[0]
    settings = [VARIANTS.get(name, {})] * len(SEEDS)
    made = plans(method, SEEDS, settings=settings, tasks=stream(tasks=3, samples=23))
    outcomes, weights = side_by_side(made, folder)
    measured = {key: [vars(outcome)[key] for outcome in outcomes] for key in MEASURED}
    return weights.double().cpu(), json.loads(json.dumps(measured))
