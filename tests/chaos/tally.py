"""Counts of what was tried and what failed, kept in a file, so that a long attack goes on where it was left."""

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

Case = Callable[[random.Random, int], int | None]
"""One case of a kind, given its random numbers and its place: raises `Broken`, and gives how many it was, if not one."""


class Broken(AssertionError):
    """A promise that the project makes was broken."""


def demand(holds: object, what: str) -> None:
    """Raise `Broken` unless something holds."""
    if not holds:
        raise Broken(what)


@dataclass
class Tally:
    """What was tried of each kind, and the failures by their places.

    Args:
        seed: where all random numbers come from.
        path: the file that keeps the counts; None for none.
    """

    seed: int
    path: Path | None = None
    tried: dict[str, int] = field(default_factory=dict)
    failed: dict[str, dict[str, str]] = field(default_factory=dict)
    begun: dict[str, int] = field(default_factory=dict)
    """The place of the next case of each kind."""

    @classmethod
    def at(cls, path: Path, seed: int) -> "Tally":
        """The counts in a file, if they are of this seed."""
        found = json.loads(path.read_text()) if path.exists() else {}
        return cls(seed, path, **{k: v for k, v in found.items() if k != "seed"} if found.get("seed") == seed else {})

    def attack(self, kind: str, case: Case, aim: int, seconds: float | None = None) -> None:
        """Try cases of a kind until there were `aim` of them, or until the time is over."""
        end = None if seconds is None else time.monotonic() + seconds
        while self.tried.get(kind, 0) < aim and (end is None or time.monotonic() < end):
            self.one(kind, case, self.begun.get(kind, 0))
            self._save()

    def one(self, kind: str, case: Case, place: int) -> None:
        """Try the case of a kind that has this place; the same seed, kind and place make the same case."""
        self.begun[kind] = max(self.begun.get(kind, 0), place + 1)
        counted = 1
        try:
            counted = case(random.Random(f"{self.seed} {kind} {place}"), place) or 1
        except Exception as error:
            self.failed.setdefault(kind, {})[str(place)] = f"{type(error).__name__}: {error}"
        self.tried[kind] = self.tried.get(kind, 0) + counted

    @property
    def failures(self) -> list[str]:
        """One line for each."""
        return [f"{kind}:{place} {why}" for kind, own in self.failed.items() for place, why in own.items()]

    def _save(self) -> None:
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            kept = {"seed": self.seed, "tried": self.tried, "failed": self.failed, "begun": self.begun}
            beside = self.path.with_suffix(".new")
            beside.write_text(json.dumps(kept, indent=1))
            os.replace(beside, self.path)


def table(tally: Tally, groups: dict[str, list[str]]) -> Iterator[str]:
    """The counts as lines of Markdown, a row for each kind that was tried and one for each group's sum."""
    yield "| attack | cases | failures |"
    yield "| --- | ---: | ---: |"
    for group, kinds in groups.items():
        own = [kind for kind in kinds if tally.tried.get(kind)]
        if own:
            lost = {kind: len(tally.failed.get(kind, {})) for kind in own}
            yield f"| **{group}** | **{sum(tally.tried[kind] for kind in own):,}** | **{sum(lost.values())}** |"
            yield from (f"| {kind} | {tally.tried[kind]:,} | {lost[kind]} |" for kind in own)


@contextmanager
def here(folder: Path) -> Iterator[None]:
    """Work in a folder."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
