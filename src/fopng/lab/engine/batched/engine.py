"""The batched twin of the training loop: the same stages, orders, draws and measurements for R runs at once."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

import torch

from fopng.curvature.sampling import held_at_most
from fopng.lab.engine.batched.evaluation import StackedTests
from fopng.lab.engine.batched.samples import StackedSamples
from fopng.lab.engine.batched.sampling import StackedTaskSamples
from fopng.lab.engine.batched.stacked import StackedRuns
from fopng.lab.engine.batched.steps import Stepper
from fopng.lab.engine.batched.task import StackedStream
from fopng.lab.engine.costs import Stopwatch, forget_peak_memory, peak_memory
from fopng.lab.engine.loop import SAVE_SECONDS, Ending, diagnosed_every
from fopng.lab.engine.measured import TaskMeans, note_task, numbers
from fopng.lab.engine.observers import (
    Audience,
    EpochStarted,
    Evaluated,
    Event,
    Observer,
    RunEnded,
    RunStarted,
    StepDone,
    TaskEnded,
    TaskStarted,
)
from fopng.lab.engine.plan import Interrupted, Outcome, Plan, Row, mean, stopped_after
from fopng.lab.engine.streams import Turns
from fopng.lab.storage.checkpoint import Checkpoint, CheckpointError
from fopng.optim.task import Task

TURN = 16
"""Steps between two turns of other waves."""


def train_replicas(
    plans: Sequence[Plan],
    *,
    device: torch.device,
    checkpoint: Checkpoint | None = None,
    observers: Iterable[Observer] = (),
    own_observers: Sequence[Iterable[Observer]] = (),
    should_stop: Callable[[], bool] = lambda: False,
    notice: Callable[[str], None] = lambda sentence: None,
    save_seconds: float = SAVE_SECONDS,
    capture: bool | None = None,
    turns: Turns | None = None,
) -> list[Outcome]:
    """Do several runs of one benchmark and one method together, or the rest of them.

    Args:
        plans: the runs; they may differ in seed and in numeric settings. `NotStackable` where they differ in more.
        device: where the weights and the data live.
        checkpoint: where they are saved together while they go on.
        observers: who is told what happens to all of them.
        own_observers: for each run, who is told what happens to it, task by task.
        should_stop: asked after every step; when it says yes the runs are saved and `Interrupted` raised.
        notice: told what was found damaged and passed over.
        save_seconds: the time between checkpoints; there is one at the end of each task besides.
        capture: replay the steps from a CUDA graph; by default on CUDA.
        turns: those of other waves on the same device, to which this one gives way every few steps.
    """
    captured = device.type == "cuda" if capture is None else capture
    with plans[0].precision.arithmetic():
        runs = StackedRuns(plans, device)
        audiences = [Audience(own) for own in own_observers] or [Audience(()) for _ in plans]
        turns = Turns(device) if turns is None else turns
        wave = _Wave(runs, checkpoint, Audience(observers), audiences, should_stop, save_seconds, captured, turns)
        return wave.watched(notice)


@final
class _Wave:
    def __init__(
        self,
        runs: StackedRuns,
        checkpoint: Checkpoint | None,
        audience: Audience,
        own_audiences: Sequence[Audience],
        should_stop: Callable[[], bool],
        save_seconds: float,
        capture: bool,
        turns: Turns,
    ) -> None:
        self.runs, self.plans, self.device = runs, runs.plans, runs.device
        self.model, self.pipeline = runs.model, runs.pipeline
        self.checkpoint, self.audience, self.own_audiences = checkpoint, audience, own_audiences
        self.should_stop, self.save_seconds, self.capture, self.turns = should_stop, save_seconds, capture, turns
        self.stages = runs.stages
        self.position = {"stage": 0, "epoch": 0, "step": 0, "done": 0}
        self.outcomes = [Outcome() for _ in self.plans]
        self.means = TaskMeans()
        self.watch = Stopwatch(turns.wait, {})
        self.held = held_at_most(self.device, turns.lanes)
        self.tests = StackedTests(self.model, [plan.stream for plan in self.plans], runs.sample_bytes, self.held)
        self.started = self.saved = time.monotonic()
        self.ended: set[int] = set()

    @property
    def steps(self) -> int:
        """Steps of each run."""
        return self.plans[0].epochs * sum(stages[0].steps for stages in self.stages)

    def watched(self, notice: Callable[[str], None]) -> list[Outcome]:
        """Do the runs; observers learn how they ended, in whatever way."""
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
            self._measure_start()
        for number in range(self.position["stage"], len(self.stages)):
            if not self.runs.bury():
                break
            self._learn(number)
            self._measure(number)
            self.position |= {"stage": number + 1, "epoch": 0, "step": 0}
            self._save()

    # Learning

    def _learn(self, number: int) -> None:
        stages, task, started = self.stages[number], self.stages[number][0].tasks[0], time.monotonic()
        self._tell_going(TaskStarted(task))
        samples = StackedSamples([stage.stream[task].train for stage in stages], self.device, self.model.theta.dtype)
        weights, runs = self.model.weights, self.runs
        stream = StackedStream(samples, task, weights, runs.generators, runs.alive, self.held)
        steps = self.plans[0].epochs * stages[0].steps
        at_hand = Task(runs.source, stream, StackedTaskSamples(runs.source, stream), weights.parts, steps)
        rate = runs.first_rate if number == 0 else None
        plain = rate is not None
        stepper = Stepper(self.model, self.pipeline, runs.rate if rate is None else rate, runs.alive, plain=plain)
        while self.position["epoch"] < self.plans[0].epochs and self.runs.bury():
            self._learn_epoch(number, task, samples, at_hand, stepper)
            self.position |= {"epoch": self.position["epoch"] + 1, "step": 0}
        if self.runs.prove(samples, task) if self.pipeline.needs.data else self.runs.bury():
            with torch.no_grad(), self.watch.phase("end of task"):
                self.pipeline.end_task(at_hand)
        self.runs.note_nonfinite()
        self._note_diverged()
        measured = {**self.means.take(), **numbers(self.pipeline.method.measure_task(self.pipeline.state))}
        for r in self._going():
            note_task(self.outcomes[r].measured, task, {name: own[r] for name, own in measured.items()})
        self._tell_going(TaskEnded(task, time.monotonic() - started))

    def _learn_epoch(self, number: int, task: int, samples: StackedSamples, at_hand: Task, stepper: Stepper) -> None:
        stages, epoch = self.stages[number], self.position["epoch"]
        self._tell_going(EpochStarted(task, epoch))
        if self.position["step"] == 0 and not stepper.plain and self.pipeline.needs.refresh is not None:
            if not self.runs.prove(samples, task):
                return
            with torch.no_grad(), self.watch.phase("refresh"):
                self.pipeline.refresh(at_hand)
            stepper.forget_graph()
        orders = torch.stack([stage.order(epoch, task) for stage in stages]).to(self.device)
        every = diagnosed_every(stages[0].steps, self.plans[0].epochs)
        offset = epoch * stages[0].steps
        self.model.step.fill_(self.position["done"])

        def after(step: int) -> None:
            self.position["step"] = step + 1
            self.position["done"] += 1
            if stepper.taken is not None and not stepper.plain and (offset + step + 1) % every == 0:
                self.means.add(self.pipeline.method.measure_step(stepper.taken))
            if self.audience:
                measure = lambda: {"loss": float(stepper.loss[self.runs.alive].mean())}  # noqa: E731
                self.audience.tell(StepDone(task, epoch, self.position["done"], measure))
            if time.monotonic() - self.saved >= self.save_seconds or self.should_stop():
                self._save_or_stop()
            if step % TURN == 0:
                self.turns.end_turn()

        self.model.template.train()
        with self.watch.phase("train"):
            stepper.walk(samples, orders, stages[0].batch_size, task, self.position["step"], after, self.capture)
        self.runs.note_nonfinite()
        self._tell_losses(task, epoch, stepper)

    # Measuring

    def _measure_start(self) -> None:
        tasks = len(self.plans[0].stream)
        held_out = self.plans[0].stream[0].validation is not None
        with self.watch.phase("evaluation"):
            rows = self.tests.rows(range(tasks), "test")
        for outcome, row in zip(self.outcomes, rows, strict=True):
            outcome.initial_accuracy = row
            outcome.accuracy_before = [row[0], *[None] * (tasks - 1)]
            outcome.validation_accuracy = [] if held_out else None

    def _measure(self, number: int) -> None:
        last = self.stages[number][0].tasks[0]
        held_out, ahead = None, None
        with self.watch.phase("evaluation"):
            rows = self.tests.rows(range(last + 1), "test")
            if self.outcomes[0].validation_accuracy is not None:
                held_out = self.tests.rows(range(last + 1), "validation")
            if last + 1 < len(self.plans[0].stream):
                ahead = self.tests.rows([last + 1], "test")
        for r in self._going():
            outcome = self.outcomes[r]
            outcome.accuracy.append(rows[r])
            self.own_audiences[r].tell(Evaluated(last, "test", rows[r], mean(rows[r])))
            if held_out is not None and outcome.validation_accuracy is not None:
                outcome.validation_accuracy.append(held_out[r])
                self.own_audiences[r].tell(Evaluated(last, "validation", held_out[r], mean(held_out[r])))
            if ahead is not None:
                outcome.accuracy_before[last + 1] = ahead[r][last + 1]
        self._tell_average(last, [rows[r] for r in self._going()])

    def _going(self) -> list[int]:
        return [r for r, outcome in enumerate(self.outcomes) if outcome.status == "finished"]

    def _note_diverged(self) -> None:
        for r, alive in enumerate(self.runs.alive.tolist()):
            if not alive and r not in self.ended:
                self.outcomes[r].status = "diverged"
                self.ended.add(r)
                self.own_audiences[r].tell(RunEnded("diverged", time.monotonic() - self.started))

    def _share_costs(self) -> None:
        """Each run is given its part of the time and of the memory; what each of several waves took nobody knows."""
        peak = peak_memory(self.device) if self.turns.lanes == 1 else None
        runs = self.runs.count * self.turns.lanes
        for outcome in self.outcomes:
            outcome.seconds_by_phase = {name: value / runs for name, value in self.watch.seconds.items()}
            outcome.peak_memory_bytes = None if peak is None else peak // self.runs.count

    # Telling

    def _tell_started(self) -> None:
        tasks, done, label = len(self.plans[0].stream), self.position["done"], self.runs.label
        self.audience.tell(RunStarted(label, tasks, self.steps, done, self.plans[0].facts, self.runs.count))
        for r in self._going():
            plan = self.plans[r]
            self.own_audiences[r].tell(RunStarted(plan.label, tasks, self.steps, done, plan.facts))

    def _tell_going(self, event: Event) -> None:
        self.audience.tell(event)
        for r in self._going():
            self.own_audiences[r].tell(event)

    def _tell_losses(self, task: int, epoch: int, stepper: Stepper) -> None:
        losses, done = stepper.loss.tolist(), self.position["done"]
        for r in self._going():
            self.own_audiences[r].tell(StepDone(task, epoch, done, lambda r=r: {"loss": losses[r]}))  # type: ignore[misc]

    def _tell_average(self, task: int, rows: Sequence[Row]) -> None:
        if rows:
            columns = [[value for value in column if value is not None] for column in zip(*rows, strict=True)]
            row = tuple(sum(column) / len(column) if column else None for column in columns)
            self.audience.tell(Evaluated(task, "test", row, mean(row)))

    def _tell_ended(self, how: Ending) -> None:
        seconds = time.monotonic() - self.started
        all_diverged = how == "finished" and not self._going()
        self.audience.tell(RunEnded("diverged" if all_diverged else how, seconds))
        for r in self._going():
            self.own_audiences[r].tell(RunEnded(how, seconds))

    # Saving

    def _save_or_stop(self) -> None:
        self._save()
        if self.should_stop():
            raise stopped_after(self.position["done"], self.steps)

    def _save(self) -> None:
        if self.checkpoint is not None:
            with self.watch.phase("checkpoints"):
                self.checkpoint.save(self._state())
        self.saved = time.monotonic()

    def _state(self) -> dict[str, Any]:
        return {
            "position": dict(self.position),
            "runs": self.runs.state_dict(),
            "means": self.means.state_dict(),
            "outcomes": [outcome.as_dict() for outcome in self.outcomes],
            "seconds": dict(self.watch.seconds),
        }

    def _restore(self, notice: Callable[[str], None]) -> None:
        if self.checkpoint is None:
            return
        found = self.checkpoint.load()
        for sentence in found.damaged:
            notice(sentence)
        state: dict[str, Any] | None = found.state
        if state is None:
            return
        try:
            self.runs.load_state_dict(state["runs"])
            self.means.load_state_dict(state["means"], self.device)
            self.position = state["position"]
            self.outcomes = [Outcome(**outcome) for outcome in state["outcomes"]]
            self.watch = Stopwatch(self.turns.wait, state["seconds"])
        except (ValueError, TypeError, KeyError, RuntimeError) as error:
            raise CheckpointError(
                f"Expected the checkpoint of these runs, got one that does not fit ({error}). Start over with --again."
            ) from error
        self.ended = {r for r, outcome in enumerate(self.outcomes) if outcome.status == "diverged"}
