"""Sweeps: settings tried on a held-out part, the best of them measured on test with fresh seeds."""

from fopng.lab.sweep.choosing import Rule, respond
from fopng.lab.sweep.conducting import Foreseen, SweepOutcome, conduct, foresee
from fopng.lab.sweep.file import Sweep, chosen_toml, parse_sweep, read_sweep

__all__ = [
    "Foreseen",
    "Rule",
    "Sweep",
    "SweepOutcome",
    "chosen_toml",
    "conduct",
    "foresee",
    "parse_sweep",
    "read_sweep",
    "respond",
]
