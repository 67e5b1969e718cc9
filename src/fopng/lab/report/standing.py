"""Who is best, and whether that can be said: differences paired over seeds, corrected for their number."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import final

from fopng.lab.runs.scores import Estimate, holm, paired_difference

LEVEL = 0.05
"""How often, among all comparisons of a family, one may be called a difference that is none."""

Scores = Mapping[int, float | None]
"""One score a seed."""


@final
class Mark(Enum):
    """How a line stands among its rivals."""

    BEST = "better than every other, at 95 %"
    LEVEL = "not told apart from the best mean, at 95 %"
    BEHIND = "behind the best mean, at 95 %"
    UNDECIDED = "too few seeds to say"


@final
@dataclass(frozen=True)
class Standing:
    """A line among its rivals."""

    mark: Mark
    behind: Estimate
    """By how much the leader is ahead, seed by seed; without values for the leader itself."""


_NOTHING = Standing(Mark.UNDECIDED, Estimate.of([]))


def standings(rivals: Sequence[Scores]) -> list[Standing]:
    """Each rival's standing. The leader has the highest mean, among those that lost no run if there are such.

    It is best only where it is ahead of every rival with a score, by t tests over the seeds that both have, with Holm's
    correction at 95 %. Whoever lost runs is never best: those that were left may be the lucky ones.
    """
    estimates = [Estimate.of(list(scores.values())) for scores in rivals]
    if not any(estimate.count for estimate in estimates):
        return [_NOTHING for _ in rivals]
    leader = max(range(len(rivals)), key=lambda index: _rank(estimates[index]))
    others = [index for index, estimate in enumerate(estimates) if index != leader and estimate.count]
    behind = {index: paired_difference(rivals[leader], rivals[index]) for index in others}
    marks = _marks(behind)
    marks[leader] = _leaders_mark(estimates[leader], list(marks.values()))
    return [
        Standing(marks[index], behind.get(index, _NOTHING.behind)) if index in marks else _NOTHING
        for index in range(len(rivals))
    ]


def _rank(estimate: Estimate) -> tuple[bool, bool, float]:
    return estimate.count > 0, estimate.missing == 0, -math.inf if math.isnan(estimate.mean) else estimate.mean


def _marks(behind: Mapping[int, Estimate]) -> dict[int, Mark]:
    decided = {index: difference for index, difference in behind.items() if difference.count > 1}
    refuted = holm([difference.p_value for difference in decided.values()], LEVEL)
    found = {
        index: Mark.BEHIND if sure and difference.mean > 0 else Mark.LEVEL
        for (index, difference), sure in zip(decided.items(), refuted, strict=True)
    }
    return {index: found.get(index, Mark.UNDECIDED) for index in behind}


def _leaders_mark(leader: Estimate, others: Sequence[Mark]) -> Mark:
    if not others or all(mark is Mark.UNDECIDED for mark in others):
        return Mark.UNDECIDED
    return Mark.BEST if leader.missing == 0 and set(others) == {Mark.BEHIND} else Mark.LEVEL
