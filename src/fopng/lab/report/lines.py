"""One method with one choice of settings, averaged over its seeds."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import final

from fopng.lab.report.families import Family, family_of
from fopng.lab.report.standing import Standing
from fopng.lab.report.words import listed
from fopng.lab.runs import scores
from fopng.lab.runs.command import command_of
from fopng.lab.runs.config import Value, differing
from fopng.lab.runs.result import Row, RunResult
from fopng.lab.runs.scores import Estimate


@final
@dataclass(frozen=True)
class Line:
    """Runs that differ in their seed alone, and the estimates that a report shows of them."""

    label: str
    """The method, with the settings in which it differs from another line of the same method."""
    runs: tuple[RunResult, ...]
    """In the order of their seeds; one at least."""
    standing: Standing | None = None
    """Among its rivals; None where it has none."""

    @classmethod
    def of(cls, label: str, runs: Iterable[RunResult]) -> "Line":
        """The line of these runs, in the order of their seeds."""
        return cls(label, tuple(sorted(runs, key=lambda run: run.config.seed)))

    @cached_property
    def key(self) -> tuple[str, ...]:
        """What names it among all lines, whatever its label: the keys of its runs."""
        return tuple(run.config.key for run in self.runs)

    @property
    def method(self) -> str:
        """The method's name."""
        return self.runs[0].config.method

    @property
    def family(self) -> Family:
        """What the method may keep of old tasks."""
        return family_of(self.method)

    @property
    def settings(self) -> Mapping[str, Value]:
        """The method's, every one."""
        return self.runs[0].config.settings

    @property
    def seeds(self) -> tuple[int, ...]:
        """Those of the runs."""
        return tuple(run.config.seed for run in self.runs)

    @property
    def diverged(self) -> int:
        """How many of the runs ended in numbers that are none."""
        return sum(run.status == "diverged" for run in self.runs)

    @property
    def alone(self) -> list["Line"]:
        """Each run as a line of its own."""
        return [Line(self.label, (run,)) for run in self.runs]

    @cached_property
    def command(self) -> str:
        """What makes these runs again."""
        return command_of(self.runs[0].config, self.seeds)

    @cached_property
    def accuracy(self) -> Estimate:
        """`A_T` on test."""
        return self._over(lambda run: run.final_accuracy)

    @cached_property
    def forgetting(self) -> Estimate:
        """The mean fall of each task from its best."""
        return self._over(lambda run: run.forgetting)

    @cached_property
    def learning(self) -> Estimate:
        """The mean accuracy on each task when it had just been learnt."""
        return self._over(lambda run: scores.learning_accuracy(run.accuracy))

    @cached_property
    def removed(self) -> Estimate:
        """The fraction of the gradient that the projection took away."""
        return self._over(lambda run: scores.score("removed_fraction").of(run))

    @cached_property
    def seconds(self) -> Estimate:
        """All phases of a run together, of those that did not share their device with other methods."""
        return self._over(lambda run: run.comparable_seconds)

    @property
    def phases(self) -> dict[str, Estimate]:
        """The seconds of each phase of a run, the longest first; of those that did not share their device with other methods."""
        runs = [run for run in self.runs if run.comparable_seconds is not None]
        names = {name for run in runs for name in run.seconds_by_phase}
        found = {name: Estimate.of([run.seconds_by_phase.get(name) for run in runs]) for name in names}
        return dict(sorted(found.items(), key=lambda phase: (-phase[1].mean, phase[0])))

    @cached_property
    def memory(self) -> Estimate:
        """The peak of a run in bytes."""
        return self._over(lambda run: run.peak_memory_bytes)

    @cached_property
    def curve(self) -> tuple[Estimate, ...]:
        """`A_1 .. A_T`."""
        return _entries([run.average_accuracy for run in self.runs])

    @cached_property
    def removed_by_task(self) -> tuple[Estimate, ...]:
        """The removed fraction while each task was learnt."""
        return _entries([run.measured.get("removed_fraction", ()) for run in self.runs])

    @cached_property
    def matrix(self) -> tuple[tuple[Estimate, ...], ...]:
        """Row k: the accuracy on each task after task k."""
        rows: list[list[Row]] = [list(row) for row in zip_longest(*(run.accuracy for run in self.runs), fillvalue=())]
        return tuple(_entries(row) for row in rows)

    def _over(self, score: Callable[[RunResult], float | None]) -> Estimate:
        return Estimate.of([score(run) for run in self.runs])


def label_of(method: str, settings: Mapping[str, Value], others: Sequence[Mapping[str, Value]]) -> str:
    """A method's name with those of its settings in which it differs from others.

    >>> label_of("sgd", {"lr": 0.1}, [{"lr": 0.1}, {"lr": 1.0}])
    'sgd (lr=0.1)'
    """
    return labelled(method, settings, differing(others))


def labelled(method: str, settings: Mapping[str, Value], names: Iterable[str]) -> str:
    """A method's name with these of its settings; one that it does not have says nothing."""
    words = listed({name: settings[name] for name in names if name in settings})
    return f"{method} ({words})" if words else method


def _entries(rows: Sequence[Sequence[float | None]]) -> tuple[Estimate, ...]:
    return tuple(Estimate.of(values) for values in zip_longest(*rows))
