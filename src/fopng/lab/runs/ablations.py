"""The paper's ablations: one setting of FOPNG varied, all others at the paper's values."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

from fopng.lab.runs.request import Request
from fopng.lab.runs.settings import NOTHING, SettingValue, unknown


@final
@dataclass(frozen=True)
class Ablated:
    """A setting that is varied."""

    name: str
    """What a user types."""
    setting: str
    """What the method calls it."""
    values: tuple[SettingValue, ...]


ABLATIONS = {
    each.name: each
    for each in (
        Ablated(
            "lambda",
            "damping",
            (1e-5, 3e-5, 5e-5, 7e-5, 1e-4, 3e-4, 5e-4, 7e-4, 1e-3, 3e-3, 5e-3, 7e-3, 1e-2),
        ),
        Ablated("alpha", "fisher_weight", (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)),
        # The text names 1, 16 and "over 16"; in its figure the values between are not to be read.
        Ablated("fisher-samples", "fisher_samples", (1, 4, 16, 64, 256, 1024, None)),
    )
}

BENCHMARKS = ("split-mnist", "rotated-mnist")
"""Those that the paper ablates on."""

METHOD = "fopng"


def find_ablation(name: str) -> Ablated:
    """The ablation of this name; ValueError suggests the nearest."""
    if name not in ABLATIONS:
        raise ValueError(unknown("an ablation", name, ABLATIONS))
    return ABLATIONS[name]


def ablation_requests(ablated: Ablated, base: Request, values: Sequence[str] = ()) -> list[Request]:
    """A request for each value; the rest as in `base`.

    Args:
        ablated: what is varied.
        base: benchmark, method, seeds and whatever else.
        values: other values than the paper's, as they would be typed.
    """
    words = list(values) or [NOTHING[0] if value is None else str(value) for value in ablated.values]
    if len(set(words)) < len(words):
        raise ValueError(f"Expected each value once, got {', '.join(words)}.")
    setting = ablated.setting
    return [replace(base, assignments=[*base.assignments, f"{setting}={word}"]) for word in words]
