"""Where names stand beside the points they belong to, without hiding one another."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

HEIGHT = 20.0
DEPTH = 5.0
"""How far letters reach below the base line."""
GAP = 8.0

Place = tuple[float, float, str]
"""Where the text begins, its base line, and the class that anchors it: `` at its start, `e` at its end, `m` in the middle."""


@final
@dataclass(frozen=True)
class Box:
    """A rectangle, y downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: "Box") -> bool:
        """Whether the two have a point in common."""
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )

    def within(self, other: "Box") -> bool:
        """Whether all of it lies in the other."""
        return (
            self.left >= other.left
            and self.right <= other.right
            and self.top >= other.top
            and self.bottom <= other.bottom
        )


def place_labels(labels: Sequence[tuple[tuple[float, float], float]], room: Box) -> list[Place | None]:
    """A place for each label, the first ones first; None where every place beside its point is taken.

    Args:
        labels: a point, and the width of its label.
        room: where labels may stand.
    """
    taken = [Box(x - 5, y - 5, x + 5, y + 5) for (x, y), _ in labels]
    found: list[Place | None] = []
    for index, ((x, y), width) in enumerate(labels):
        others = [box for other, box in enumerate(taken) if other != index]
        free = (
            (place, box)
            for place, box in _candidates(x, y, width)
            if box.within(room) and not any(box.meets(other) for other in others)
        )
        place, box = next(free, (None, None))
        found.append(place)
        if box is not None:
            taken.append(box)
    return found


def _candidates(x: float, y: float, width: float) -> Iterable[tuple[Place, Box]]:
    """To the right, to the left, above, below."""
    yield from (
        _standing((x + GAP, y + 4.5, ""), x + GAP, width),
        _standing((x - GAP, y + 4.5, "e"), x - GAP - width, width),
        _standing((x, y - GAP - DEPTH, "m"), x - width / 2, width),
        _standing((x, y + GAP + HEIGHT - DEPTH, "m"), x - width / 2, width),
    )


def _standing(place: Place, left: float, width: float) -> tuple[Place, Box]:
    bottom = place[1] + DEPTH
    return place, Box(left, bottom - HEIGHT, left + width, bottom)
