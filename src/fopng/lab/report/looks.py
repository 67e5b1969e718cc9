"""How each line is drawn, so that it is told from the others by colour, by dashes and by its marker."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import final

PALETTE = ("#0072b2", "#c44e00", "#00855f", "#b4568f", "#7a6800", "#6f4bb8", "#6b6b6b", "#b07300")
"""After Okabe and Ito, for eyes that tell few colours apart, dark enough to be read on white."""

DARK_PALETTE = ("#5aaee6", "#ff8a4c", "#3fc69a", "#e59ac6", "#d3bd3b", "#b9a0f5", "#b5b9bf", "#f0b441")
"""The same, light enough to be read on black."""

DASHES = ((), (7.0, 3.0), (9.0, 3.0, 2.0, 3.0), (2.0, 2.5))
"""Lengths of strokes and gaps; none for a line without gaps."""


@final
class Marker(Enum):
    """A marker's outline, as SVG's path from its middle, and matplotlib's letter for it."""

    CIRCLE = ("m-4,0a4,4 0 1,0 8,0a4,4 0 1,0-8,0", "o")
    SQUARE = ("m-3.5-3.5h7v7h-7z", "s")
    UP = ("m0-4.6l4.4,7.8h-8.8z", "^")
    DIAMOND = ("m0-4.8l4.8,4.8l-4.8,4.8l-4.8-4.8z", "D")
    DOWN = ("m0,4.6l4.4-7.8h-8.8z", "v")
    PLUS = ("m-1.5-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z", "P")
    CROSS = (
        "m0-2.1l2.3-2.3l2.1,2.1l-2.3,2.3l2.3,2.3l-2.1,2.1l-2.3-2.3l-2.3,2.3l-2.1-2.1l2.3-2.3l-2.3-2.3l2.1-2.1z",
        "X",
    )

    @property
    def path(self) -> str:
        """Relative to the point that it marks."""
        return self.value[0]

    @property
    def letter(self) -> str:
        """As matplotlib calls it."""
        return self.value[1]


@final
@dataclass(frozen=True)
class Look:
    """How a line is drawn."""

    colour: int
    """Its place in the palettes."""
    dashes: tuple[float, ...]
    marker: Marker


Looks = Mapping[str, Look]
"""By label."""


def looks_of(labels: Sequence[str]) -> Looks:
    """A look for each label, the same in every figure of a page; neighbours differ in everything."""
    markers = list(Marker)
    found = {}
    for index, label in enumerate(sorted(set(labels))):
        turn, marker = divmod(index, len(markers))
        # Shifted at every turn, so that dashes and markers alone tell 28 lines apart.
        dashes = DASHES[(marker + turn) % len(DASHES)]
        found[label] = Look(index % len(PALETTE), dashes, markers[marker])
    return found
