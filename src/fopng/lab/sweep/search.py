"""Which settings are tried next: grids stage by stage, or whatever a sampler of Optuna's draws."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, final

from fopng.core.extras import from_extra
from fopng.lab.runs.config import Value, canonical_json
from fopng.lab.runs.findings import Response
from fopng.lab.sweep.space import Choice, Range, Stage
from fopng.optim.settings import AT_LEAST_0, COUNT, check_settings

if TYPE_CHECKING:
    import optuna

Sampler = Literal["tpe", "random", "gp", "qmc"]


class Search(ABC):
    """A search for the best settings of one method on one benchmark: ask, try, tell, until nothing is asked."""

    @abstractmethod
    def ask(self, response: Response | None) -> Sequence[Choice]:
        """The settings to try next, none when the search is over.

        Args:
            response: everything that was tried so far; None in the beginning.
        """


@final
class GridSearch(Search):
    """All combinations of a stage; a later stage keeps what the earlier ones chose, but for what it sets itself.

    Args:
        stages: one after another.
    """

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._stages = list(stages)
        self._known: list[str] = []

    def ask(self, response: Response | None) -> Sequence[Choice]:
        if not self._stages or (response is not None and response.chosen is None):
            return []
        stage = self._stages.pop(0)
        kept: dict[str, Value] = {}
        if response is not None and response.chosen is not None:
            kept = {name: response.chosen.settings[name] for name in self._known}
        self._known = sorted({*self._known, *stage.names})
        return [{**kept, **choice} for choice in stage.combinations()]


@final
@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How settings are drawn: the `[search]` table of a file."""

    sampler: Annotated[Sampler, "one of Optuna's."] = "tpe"
    trials: Annotated[int, COUNT, "how many are drawn in all."]
    at_once: Annotated[int, COUNT, "drawn together, so that their runs can be done together."] = 10
    seed: Annotated[int, AT_LEAST_0, "of the draws."] = 0

    def __post_init__(self) -> None:
        check_settings(self)


@final
class SampledSearch(Search):
    """Settings drawn by a sampler of Optuna's, which learns from what was tried.

    The draws are decided by the seed and by the accuracies, so that a sweep that was interrupted asks for the same
    settings again and finds their runs done.

    Args:
        stage: what to draw from; lists are chosen from, ranges drawn from.
        sampling: how.
    """

    def __init__(self, stage: Stage, sampling: Sampling) -> None:
        self._stage, self._sampling = stage, sampling
        self._study = _study(sampling)
        self._open: list[tuple[optuna.Trial, str]] = []
        self._drawn = 0

    def ask(self, response: Response | None) -> Sequence[Choice]:
        if response is not None:
            self._tell(response)
        count = min(self._sampling.at_once, self._sampling.trials - self._drawn)
        self._drawn += count
        choices = []
        for _ in range(count):
            trial = self._study.ask()
            choice = {name: _suggest(trial, name, values) for name, values in self._space().items()}
            self._open.append((trial, canonical_json(choice)))
            choices.append(choice)
        return choices

    def _space(self) -> dict[str, Range | tuple[Value, ...]]:
        return {**self._stage.lists, **self._stage.ranges}

    def _tell(self, response: Response) -> None:
        import optuna

        found = {canonical_json({n: p.settings[n] for n in self._stage.names}): p for p in response.points}
        for trial, choice in self._open:
            point = found.get(choice)
            if point is None or point.refused is not None:
                self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                self._study.tell(trial, point.accuracy.mean)
        self._open = []


def _suggest(trial: optuna.Trial, name: str, space: Range | tuple[Value, ...]) -> Value:
    if not isinstance(space, Range):
        return space[0] if len(space) == 1 else trial.suggest_categorical(name, list(space))  # type: ignore[arg-type]
    if space.whole:
        step = 1 if space.step is None else int(space.step)
        return trial.suggest_int(name, int(space.low), int(space.high), step=step, log=space.log)
    return trial.suggest_float(name, space.low, space.high, step=space.step, log=space.log)


def _study(sampling: Sampling) -> optuna.Study:
    with from_extra("optuna", "a [search] table"):
        import optuna
    makers: Mapping[str, Any] = {
        "tpe": optuna.samplers.TPESampler,
        "random": optuna.samplers.RandomSampler,
        "gp": optuna.samplers.GPSampler,
        "qmc": optuna.samplers.QMCSampler,
    }
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(direction="maximize", sampler=makers[sampling.sampler](seed=sampling.seed))
