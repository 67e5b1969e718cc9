"""A wave that is not done yet: how often it failed, and what is tried next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

from fopng.lab.runs.config import RunConfig
from fopng.lab.runs.groups import cut

MOST_FAILURES = 3
"""A run that was part of so many failures, the last of them its own, is given up."""

MOST_LOSSES = 10
"""A wave whose worker is lost so often in a row, with nothing saved in between, counts as failed as often as it may."""


@final
@dataclass(frozen=True)
class Pending:
    """Runs that are sent out together."""

    configs: Sequence[RunConfig]
    failures: int = 0
    """How often it raised, alone or as part of a larger wave."""
    losses: int = 0
    """How often in a row its worker was lost."""

    def saved(self) -> Pending:
        """Something was saved since: it gets on, however often its worker is lost."""
        return replace(self, losses=0)

    def after_loss(self) -> list[Pending]:
        """The worker was lost, which is nobody's fault: the same again. None when it has happened too often."""
        if self.losses + 1 < MOST_LOSSES:
            return [replace(self, losses=self.losses + 1)]
        return replace(self, failures=max(self.failures, MOST_FAILURES - 1)).after_failure()

    def after_failure(self) -> list[Pending]:
        """It raised: its halves, to find out whose fault it is; a run alone once more. None when it is to be given up."""
        failures = self.failures + 1
        if len(self.configs) > 1:
            halves = cut(self.configs, -(-len(self.configs) // 2))
            return [Pending(half, failures) for half in halves]
        return [] if failures >= MOST_FAILURES else [Pending(self.configs, failures)]

    def without(self, keys: set[str]) -> Pending:
        """The same with some runs less."""
        return replace(self, configs=[config for config in self.configs if config.key not in keys])
