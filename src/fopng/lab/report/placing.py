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

MISTAKEN = 60.0
"""The same for a point that it could be taken for the name of."""

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
    points = [point for point, _ in labels]
    taken = [Box(x - 5, y - 5, x + 5, y + 5) for x, y in points]
    found: list[Place | None] = []
    for point, width in labels:

        def cost(place: Place, point: Point = point) -> float:
            return _cost(place, point, points, strokes)

        place = min(_free(_beside(point, width), room, taken), key=cost, default=None)
        if place is None or cost(place) >= MISTAKEN:
            led = _free(_anywhere(point, width, room), room, taken)
            place = min([*([] if place is None else [place]), *led], key=cost, default=None)
        found.append(place)
        if place is not None:
            taken.append(place.box)
    return found


def _free(places: Iterable[Place], room: Box, taken: Sequence[Box]) -> Iterable[Place]:
    return (place for place in places if place.box.within(room) and not any(place.box.meets(box) for box in taken))


def _cost(place: Place, point: Point, points: Sequence[Point], strokes: Sequence[Box]) -> float:
    hidden = CROSSED * sum(place.box.meets(stroke) for stroke in strokes)
    own = math.dist(point, place.box.nearest(point))
    if place.lead is not None and own > 2 * GAP:
        return hidden + own
    # Of points that lie on each other any name may be beside any.
    others = (other for other in points if math.dist(other, point) > DEPTH)
    return hidden + MISTAKEN * sum(math.dist(other, place.box.nearest(other)) < own + 2 * GAP for other in others)


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
