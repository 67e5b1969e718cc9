"""The paper's ablations: one setting of FOPNG varied, all others at the paper's values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from fopng.lab.runs.settings import SettingValue, unknown


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


def ablated_values(ablated: Ablated, words: Sequence[str] = ()) -> list[dict[str, object]]:
    """A choice of settings for each value, the paper's unless others are given as they would be typed."""
    if len(set(words)) < len(words):
        raise ValueError(f"Expected each value once, got {', '.join(words)}.")
    return [{ablated.setting: value} for value in words or ablated.values]
