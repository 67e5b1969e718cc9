"""Who runs on each stream: plain training, fixed strengths, tolerances, each half alone, and replay of as many bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

STRENGTHS = (0.03, 0.3, 3.0, 30.0, 300.0)
TOLERANCES = (0.03, 0.1, 0.3)
DEFAULT = 0.1
"""The tolerance that a user who says nothing has."""


@final
@dataclass(frozen=True, kw_only=True)
class Contender:
    """A method with settings.

    Attributes:
        title: what it is called in tables.
        method: its name.
        settings: of the method, beside the rate.
        asked: how much old tasks may lose, in nats; None where nobody says.
        as_many_bytes_as: the contender whose bytes are filled with samples; None for methods that keep none.
    """

    title: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    asked: float | None = None
    as_many_bytes_as: str | None = None


def _tolerance(asked: float) -> Contender:
    return Contender(title=f"asked {asked:g}", method="fopng-k", settings={"tolerance": asked}, asked=asked)


def _strength(value: float) -> Contender:
    settings = {"tolerance": None, "strength": value, "rehearse": 0.0}
    return Contender(title=f"strength {value:g}", method="fopng-k", settings=settings)


PLAIN, REPLAY, REHEARSAL, BEND = "plain", "replay", "rehearsal", "bend"

CONTENDERS: Mapping[str, Contender] = {
    PLAIN: Contender(title="plain training", method="sgd"),
    **{f"strength-{value:g}": _strength(value) for value in STRENGTHS},
    **{f"tolerance-{asked:g}": _tolerance(asked) for asked in TOLERANCES},
    BEND: Contender(
        title="bend alone", method="fopng-k", settings={"tolerance": DEFAULT, "rehearse": 0.0}, asked=DEFAULT
    ),
    REHEARSAL: Contender(
        title="rehearsal alone", method="sgd", settings={"tolerance": DEFAULT, "rehearse": 3.0}, asked=DEFAULT
    ),
    REPLAY: Contender(title="replay of as many bytes", method="er", as_many_bytes_as=f"tolerance-{DEFAULT:g}"),
}
"""By name, in the order in which they are done."""
