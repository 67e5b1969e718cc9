"""Where names stand beside the points they belong to, without hiding one another."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

HEIGHT = 20.0
DEPTH = 5.0
"""How far letters reach below the base line."""
GAP = 8.0
NEAR = 4.0
"""Between a name and the strokes that end in its point."""
CROSSED = 30.0
"""How much further away a name may stand for each stroke that it would hide."""

Point = tuple[float, float]


@final
@dataclass(frozen=True)
class Box:
    """A rectangle, y downwards. One without width or height is a stroke."""

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

    def nearest(self, point: Point) -> Point:
        """The place in it that is nearest to a point."""
        x, y = point
        return min(max(x, self.left), self.right), min(max(y, self.top), self.bottom)


@final
@dataclass(frozen=True)
class Place:
    """Where a name stands."""

    x: float
    y: float
    """The base line."""
    anchor: str
    """The class that says what stands at x: `` the start of the text, `e` its end, `m` its middle."""
    box: Box
    lead: Point | None = None
    """Where a line from its point ends, when the name is not right beside it."""


def place_labels(labels: Sequence[tuple[Point, float]], room: Box, strokes: Sequence[Box] = ()) -> list[Place | None]:
    """A place for each label, the first ones first: beside its point, or led to by a line; None where no room is left.

    Args:
        labels: a point, and the width of its label.
        room: where labels may stand.
        strokes: what a label hides only where it cannot stand elsewhere.
    """
    taken = [Box(x - 5, y - 5, x + 5, y + 5) for (x, y), _ in labels]
    found: list[Place | None] = []
    for point, width in labels:
        place = _best(_beside(point, width), point, room, taken, strokes)
        place = place or _best(_anywhere(point, width, room), point, room, taken, strokes)
        found.append(place)
        if place is not None:
            taken.append(place.box)
    return found


def _best(
    places: Iterable[Place], point: Point, room: Box, taken: Sequence[Box], strokes: Sequence[Box]
) -> Place | None:
    free = (place for place in places if place.box.within(room) and not any(place.box.meets(box) for box in taken))

    def cost(place: Place) -> float:
        away = 0.0 if place.lead is None else math.dist(point, place.lead)
        return away + CROSSED * sum(place.box.meets(stroke) for stroke in strokes)

    return min(free, key=cost, default=None)


def _beside(point: Point, width: float) -> Iterable[Place]:
    """To the right, to the left, above, below; then between the strokes that cross in the point."""
    x, y = point
    yield _standing(x + GAP, y + 4.5, "", width)
    yield _standing(x - GAP, y + 4.5, "e", width)
    yield _standing(x, y - GAP - DEPTH, "m", width)
    yield _standing(x, y + GAP + HEIGHT - DEPTH, "m", width)
    for base in (y - NEAR - DEPTH, y + NEAR + HEIGHT - DEPTH):
        yield _standing(x + GAP, base, "", width)
        yield _standing(x - GAP, base, "e", width)


def _anywhere(point: Point, width: float, room: Box) -> Iterable[Place]:
    for row in range(int((room.bottom - room.top - HEIGHT) / (HEIGHT / 2)) + 1):
        base = room.top + HEIGHT - DEPTH + row * HEIGHT / 2
        for column in range(int(max(0.0, room.right - room.left - width) / HEIGHT) + 1):
            place = _standing(room.left + column * HEIGHT, base, "", width)
            yield Place(place.x, place.y, place.anchor, place.box, place.box.nearest(point))


def _standing(x: float, y: float, anchor: str, width: float) -> Place:
    left = x - {"": 0.0, "e": width, "m": width / 2}[anchor]
    return Place(x, y, anchor, Box(left, y + DEPTH - HEIGHT, left + width, y + DEPTH))
