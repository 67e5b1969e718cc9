"""The training loop: stages, epochs, refresh, steps, end of task, evaluation; saved on the way and resumed from there."""

import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from math import gcd, isfinite, nan
from typing import final

from fopng.lab.engine.backend import Backend
from fopng.lab.engine.costs import Stopwatch, forget_peak_memory, peak_memory
from fopng.lab.engine.evaluation import Evaluator
from fopng.lab.engine.measured import TaskMeans, note_task, numbers
from fopng.lab.engine.observers import (
    Audience,
    Ending,
    EpochStarted,
    Evaluated,
    Event,
    RunEnded,
    RunStarted,
    StepDone,
    TaskEnded,
    TaskStarted,
)
from fopng.lab.engine.plan import Evaluation, Interrupted, Outcome, Part, Position, mean, mean_row
from fopng.lab.engine.stages import Stage
from fopng.lab.storage.checkpoint import Checkpoint, CheckpointError
from fopng.lab.storage.state import State

SAVE_SECONDS = 30.0
"""The time between two checkpoints. It decides how much a crash costs, and no number."""

AVERAGED_STEPS = 25
"""At least about so many steps of a task are measured for its means; one step in 50 of a long one."""


@final
class Loop:
    """Does the runs of a backend, or the rest of them.

    Args:
        backend: who trains.
        own_audiences: for each run, who is told what happens to it.
        audience: who is told what happens to all of them together.
        checkpoint: where they are saved together.
        should_stop: asked after every step; when it says yes the runs are saved and `Interrupted` raised.
        save_seconds: the time between checkpoints; there is one at the end of each task besides.
    """

    def __init__(
        self,
        backend: Backend,
        own_audiences: Sequence[Audience],
        audience: Audience,
        checkpoint: Checkpoint | None,
        should_stop: Callable[[], bool],
        save_seconds: float,
    ) -> None:
        self.backend, self.plans, self.device = backend, backend.plans, backend.device
        self.audience, self.own_audiences, self.checkpoint = audience, own_audiences, checkpoint
        self.own_every = gcd(*(own.every for own in own_audiences))
        self.should_stop, self.save_seconds = should_stop, save_seconds
        self.epochs, self.stream = self.plans[0].epochs, self.plans[0].stream
        self.steps = self.epochs * sum(stage.steps for stage in backend.stages)
        self.position, self.means = Position(), TaskMeans()
        self.evaluator = Evaluator(backend.answers, len(self.plans), len(self.stream))
        self.outcomes = [Outcome() for _ in self.plans]
        self.going = list(range(len(self.plans)))
        self.watch, self.peak = Stopwatch(backend.wait, {}), 0
        self.started = self.saved = time.monotonic()

    def run(self, notice: Callable[[str], None]) -> list[Outcome]:
        """The outcome of each run; `notice` is told of damaged checkpoints. Observers learn how the runs ended, in any case."""
        forget_peak_memory(self.device)
        self._restore(notice)
        how: Ending = "failed"
        self._tell_started()
        try:
            self._run()
            how = "finished"
        except (Interrupted, KeyboardInterrupt):
            how = "interrupted"
            raise
        finally:
            self._tell_ended(how)
        self._share_costs()
        return self.outcomes

    def _run(self) -> None:
        if self.outcomes[0].initial_accuracy is None:
            self._evaluate_start()
        for stage in self.backend.stages[self.position.stage :]:
            self._learn(stage)
            if not self.going:
                return
            self._evaluate(stage)
            self.position = Position(stage.number + 1, done=self.position.done)
            self._save()

    # Learning

    def _learn(self, stage: Stage) -> None:
        """Learn a stage, from wherever the runs stand."""
        task, started = stage.tasks[-1], time.monotonic()
        self._tell(TaskStarted(task))
        self.backend.begin_task(stage)
        while self._any_going() and self.position.epoch < self.epochs:
            self._learn_epoch(stage, task)
            self.position = Position(stage.number, self.position.epoch + 1, done=self.position.done)
        if not self.going:
            return
        with self.watch.phase("end of task"):
            self.backend.end_task()
        if self._any_going():
            self._note_measured(task)
            self._tell(TaskEnded(task, time.monotonic() - started))

    def _learn_epoch(self, stage: Stage, task: int) -> None:
        epoch, position = self.position.epoch, self.position
        self._tell(EpochStarted(task, epoch))
        if position.step == 0:
            with self.watch.phase("refresh"):
                self.backend.refresh()
            if not self._any_going():
                return
        every = max(1, min(50, stage.steps * self.epochs // AVERAGED_STEPS))

        def after_step() -> None:
            position.step += 1
            position.done += 1
            if (epoch * stage.steps + position.step) % every == 0:
                self.means.add(self.backend.measure_step())
            self._tell_step(task, epoch)
            if time.monotonic() - self.saved >= self.save_seconds or self.should_stop():
                self._save_or_stop()

        with self.watch.phase("train"):
            self.backend.train_epoch(epoch, position.step, position.done, after_step)

    def _note_measured(self, task: int) -> None:
        found: dict[str, Sequence[float | None]] = {
            **self.means.take(),
            **numbers(self.backend.measure_task(), len(self.plans)),
        }
        for r in self.going:
            note_task(self.outcomes[r].measured, task, {name: own[r] for name, own in found.items()})

    def _any_going(self) -> bool:
        """Note the runs that have diverged since; say whether others go on."""
        for r, alive in enumerate(self.backend.alive()):
            if not alive and r in self.going:
                self.outcomes[r].status = "diverged"
                self.own_audiences[r].tell(self._diverged())
        self.going = [r for r in self.going if self.outcomes[r].status == "finished"]
        return bool(self.going)

    # Evaluating

    def _evaluate_start(self) -> None:
        held_out = self.stream[0].validation is not None
        with self.watch.phase("evaluation"):
            found = self.evaluator.evaluate(range(len(self.stream)), "test")
        for outcome, own in zip(self.outcomes, found, strict=True):
            outcome.begin(own.accuracy, held_out=held_out)

    def _evaluate(self, stage: Stage) -> None:
        """Measure every task seen, and the next one before it is learnt."""
        last, seen = stage.tasks[-1], range(stage.tasks[-1] + 1)
        parts: tuple[Part, ...] = ("test",) if self.stream[0].validation is None else ("test", "validation")
        with self.watch.phase("evaluation"):
            found = {part: self.evaluator.evaluate(seen, part, stage.tasks) for part in parts}
            if last + 1 < len(self.stream):
                ahead = self.evaluator.evaluate([last + 1], "test")
                for r in self.going:
                    self.outcomes[r].accuracy_before[last + 1] = ahead[r].accuracy[last + 1]
        for part, rows in found.items():
            for r in self.going:
                self.outcomes[r].note(part, rows[r], last)
                self.own_audiences[r].tell(_told(last, part, rows[r]))
        average = Evaluation(*(mean_row(rows) for rows in zip(*(found["test"][r] for r in self.going), strict=True)))
        self.audience.tell(_told(last, "test", average))

    def _share_costs(self) -> None:
        """Give each run its share of the time and the memory; what each of several groups held nobody knows."""
        self._note_peak()
        count, sharers = len(self.plans), self.backend.sharers
        for outcome in self.outcomes:
            outcome.seconds_by_phase = {name: value / (count * sharers) for name, value in self.watch.seconds.items()}
            outcome.peak_memory_bytes = self.peak // count if self.peak and sharers == 1 else None

    def _note_peak(self) -> None:
        self.peak = max(self.peak, peak_memory(self.device) or 0)

    # Telling

    def _tell(self, event: Event) -> None:
        self.audience.tell(event)
        for r in self.going:
            self.own_audiences[r].tell(event)

    def _tell_started(self) -> None:
        first, count, done = self.plans[0], len(self.plans), self.position.done
        label = first.label if count == 1 else f"{first.label} and {count - 1} more"
        self.audience.tell(RunStarted(label, len(self.stream), self.steps, done, first.facts, count))
        for r in self.going:
            plan = self.plans[r]
            self.own_audiences[r].tell(RunStarted(plan.label, len(self.stream), self.steps, done, plan.facts))

    def _tell_step(self, task: int, epoch: int) -> None:
        done = self.position.done
        if self.audience:
            self.audience.tell(StepDone(task, epoch, done, self._mean_loss))
        if self.own_every and done % self.own_every == 0:
            figures = cache(self._figures)
            for r in self.going:
                self.own_audiences[r].tell(StepDone(task, epoch, done, partial(_of_run, r, figures)))

    def _figures(self) -> dict[str, list[float]]:
        return numbers({"loss": self.backend.loss(), **self.backend.diagnose()}, len(self.plans))

    def _mean_loss(self) -> dict[str, float]:
        losses = [loss for loss in self.backend.loss().reshape(-1).tolist() if isfinite(loss)]
        return {"loss": sum(losses) / len(losses) if losses else nan}

    def _diverged(self) -> RunEnded:
        tasks = self.backend.stages[min(self.position.stage, len(self.backend.stages) - 1)].tasks
        return RunEnded("diverged", time.monotonic() - self.started, tasks[-1], self.position.done)

    def _tell_ended(self, how: Ending) -> None:
        seconds = time.monotonic() - self.started
        self.audience.tell(RunEnded(how, seconds) if self.going else self._diverged())
        for r in self.going:
            self.own_audiences[r].tell(RunEnded(how, seconds))

    # Saving

    def _save_or_stop(self) -> None:
        self._save()
        if self.should_stop():
            raise Interrupted(f"Stopped after {self.position.done} of {self.steps} steps.")

    def _save(self) -> None:
        if self.checkpoint is not None:
            self._note_peak()
            with self.watch.phase("checkpoints"):
                self.checkpoint.save(
                    {
                        "position": vars(self.position),
                        "runs": self.backend.state_dict(),
                        "outcomes": [vars(outcome) for outcome in self.outcomes],
                        "means": self.means.state_dict(),
                        "answers": self.evaluator.state_dict(),
                        "costs": {"seconds": self.watch.seconds, "peak": self.peak},
                    }
                )
        self.saved = time.monotonic()

    def _restore(self, notice: Callable[[str], None]) -> None:
        if self.checkpoint is None:
            return
        found = self.checkpoint.load()
        for sentence in found.damaged:
            notice(sentence)
        if found.state is None:
            return
        try:
            self._take_over(found.state)
        except (ValueError, TypeError, KeyError, RuntimeError) as error:
            raise CheckpointError(
                f"Expected the checkpoint of these runs in {self.checkpoint.folder}, got one that does not fit: {error}. Use the "
                "version that wrote it, or start over: with --again, or delete the checkpoint there."
            ) from error

    def _take_over(self, state: State) -> None:
        self.backend.load_state_dict(state["runs"])
        self.means.load_state_dict(state["means"], self.device)
        self.evaluator.load_state_dict(state["answers"], self.device)
        self.position = Position(**state["position"])
        self.outcomes = [Outcome(**outcome) for outcome in state["outcomes"]]
        self.going = [r for r, outcome in enumerate(self.outcomes) if outcome.status == "finished"]
        self.watch, self.peak = Stopwatch(self.backend.wait, state["costs"]["seconds"]), state["costs"]["peak"]


def _told(task: int, part: Part, found: Evaluation) -> Evaluated:
    return Evaluated(task, part, found.accuracy, mean(found.accuracy), found.lost)


def _of_run(run: int, figures: Callable[[], dict[str, list[float]]]) -> dict[str, float]:
    return {name: values[run] for name, values in figures().items()}
