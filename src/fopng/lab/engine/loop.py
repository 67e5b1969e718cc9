"""The one loop for every method: tasks, epochs, refresh, steps, end of task, evaluation; saved as it goes."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fopng.core.batch import Batch, PredictTask, TaskName
from fopng.core.tree import tensors_in
from fopng.lab.benchmarks.dropout import DropoutKeys, draws_by_key, dropout_key, further_key
from fopng.lab.engine.costs import Stopwatch, forget_peak_memory, peak_memory, wait_for
from fopng.lab.engine.evaluation import Examiner
from fopng.lab.engine.measured import TaskMeans, note_task, numbers
from fopng.lab.engine.observers import (
    Audience,
    EpochStarted,
    Evaluated,
    Observer,
    RunEnded,
    RunStarted,
    StepDone,
    TaskEnded,
    TaskStarted,
)
from fopng.lab.engine.plan import Interrupted, Outcome, Plan, Position, append_row, mean, stopped_after
from fopng.lab.engine.precision import Precision
from fopng.lab.engine.randomness import drawn_from, random_states, set_random_states
from fopng.lab.engine.seeds import Seeds
from fopng.lab.engine.stages import Stage
from fopng.lab.storage.checkpoint import Checkpoint, CheckpointError, Restored

SAVE_SECONDS = 30.0
"""The time between two checkpoints. It decides how much a crash costs, and no number."""

DIAGNOSED_STEPS = 25
"""About how many steps of a task the removed fraction is averaged over, at the least; one step in 50 of a long one."""

Ending = Literal["finished", "diverged", "interrupted", "failed"]


def train(
    plan: Plan,
    *,
    device: torch.device,
    checkpoint: Checkpoint | None = None,
    observers: Iterable[Observer] = (),
    should_stop: Callable[[], bool] = lambda: False,
    notice: Callable[[str], None] = lambda sentence: None,
    save_seconds: float = SAVE_SECONDS,
) -> Outcome:
    """Do a run, or the rest of it.

    Args:
        plan: the run.
        device: where the model and the data live.
        checkpoint: where it is saved while it goes on and taken up again; None for a run that cannot be interrupted.
        observers: who is told what happens.
        should_stop: asked after every step; when it says yes the run is saved and `Interrupted` raised.
        notice: told what was found damaged and passed over.
        save_seconds: the time between checkpoints; there is one at the end of each task besides.
    """
    seeds = Seeds(plan.seed)
    with drawn_from(seeds.dropout, device), plan.precision.arithmetic():
        run = _Run(plan, seeds, device, checkpoint, Audience(observers), should_stop, save_seconds)
        return run.watched(notice)


def diagnosed_every(steps: int, epochs: int) -> int:
    """The removed fraction is measured every so many steps of a task."""
    return max(1, min(50, steps * epochs // DIAGNOSED_STEPS))


@final
class _Run:
    def __init__(
        self,
        plan: Plan,
        seeds: Seeds,
        device: torch.device,
        checkpoint: Checkpoint | None,
        audience: Audience,
        should_stop: Callable[[], bool],
        save_seconds: float,
    ) -> None:
        self.plan, self.seeds, self.device = plan, seeds, device
        self.checkpoint, self.audience = checkpoint, audience
        self.should_stop, self.save_seconds = should_stop, save_seconds
        self.model = plan.make_model(seeds.weights).to(device, plan.precision.dtype)
        self.dropout_keys = DropoutKeys([seeds.dropout], device)
        self.has_dropout = draws_by_key(self.model)
        self.optimizer = plan.make_optimizer(
            self.model,
            first_task=self._first_task(),
            predict=predict_task,
            generator=torch.Generator().manual_seed(seeds.fisher),
        )
        self.examiner = Examiner(self.model, plan.stream, seeds, device)
        self.stages = [
            Stage(number, tasks, plan.stream, plan.batch_size, seeds, device, plan.precision.dtype)
            for number, tasks in enumerate(plan.stages)
        ]
        self.steps = plan.epochs * sum(stage.steps for stage in self.stages)
        self.position, self.outcome, self.means = Position(), Outcome(), TaskMeans()
        self.watch = Stopwatch(partial(wait_for, device), self.outcome.seconds_by_phase)
        self.saved = time.monotonic()

    def watched(self, notice: Callable[[str], None]) -> Outcome:
        """Do the run; observers learn how it ended, in whatever way."""
        forget_peak_memory(self.device)
        if self.checkpoint is not None:
            self._restore(self.checkpoint.load(), self.checkpoint.folder, notice)
        plan, started = self.plan, time.monotonic()
        how: Ending = "failed"
        self.audience.tell(RunStarted(plan.label, len(plan.stream), self.steps, self.position.done, plan.facts))
        try:
            self._run()
            how = self.outcome.status
        except (Interrupted, KeyboardInterrupt):
            how = "interrupted"
            raise
        finally:
            self.audience.tell(RunEnded(how, time.monotonic() - started))
        return self.outcome

    def _run(self) -> None:
        try:
            if self.outcome.initial_accuracy is None:
                self._measure_start()
            for stage in self.stages[self.position.stage :]:
                with self._diverging():
                    self._learn(stage)
                self._evaluate(stage)
                self.position = Position(stage.number + 1, done=self.position.done)
                self._save()
        except FloatingPointError:
            self.outcome.status = "diverged"
        self._count_memory()

    def _learn(self, stage: Stage) -> None:
        """Learn a stage, from wherever the run stands."""
        task, started = stage.tasks[-1], time.monotonic()
        self.audience.tell(TaskStarted(task))
        self.optimizer.begin_task(stage.number)
        while self.position.epoch < self.plan.epochs:
            self._learn_epoch(stage, task)
            self.position = Position(stage.number, self.position.epoch + 1, done=self.position.done)
        with self.watch.phase("end of task"):
            self.optimizer.end_task(stage.whole())
        kept = numbers(self.optimizer.method.measure_task(self.optimizer.pipeline.state))
        note_task(self.outcome.measured, task, {name: own for name, [own] in {**self.means.take(), **kept}.items()})
        self.audience.tell(TaskEnded(task, time.monotonic() - started))

    def _learn_epoch(self, stage: Stage, task: int) -> None:
        epoch, position = self.position.epoch, self.position
        self.audience.tell(EpochStarted(task, epoch))
        if position.step == 0:
            with self.watch.phase("refresh"):
                self.optimizer.refresh(stage.whole())
        every = diagnosed_every(stage.steps, self.plan.epochs)
        offset = epoch * stage.steps
        self.model.train()
        with self.watch.phase("train"):
            for head, x, y in stage.epoch(epoch, position.step):
                self.optimizer.zero_grad()
                # An ordinary module draws from the global generator; ours draw what many runs side by side can draw too.
                key = self._dropout_key() if self.has_dropout else None
                loss = self._loss(x, y, head, key)
                loss.backward()
                with dropout_key(None if key is None else further_key(key)):
                    self.optimizer.step()
                position.step += 1
                position.done += 1
                if (offset + position.step) % every == 0:
                    self.means.add(self.optimizer.measure_step())
                if self.audience:
                    self._tell_step(task, epoch, loss)
                if time.monotonic() - self.saved >= self.save_seconds or self.should_stop():
                    self._save_or_stop()
        self._check_finite()

    def _loss(self, x: Tensor, y: Tensor, head: int, key: Tensor | None) -> Tensor:
        with dropout_key(key), self.plan.precision.passes(self.device):
            return cross_entropy(self.model(x, task=head), y)

    def _dropout_key(self) -> Tensor:
        # filled, not copied, which would wait for the device
        step = torch.full((), self.position.done, dtype=torch.int64, device=self.device)
        return self.dropout_keys(step)[0]

    def _tell_step(self, task: int, epoch: int, loss: Tensor) -> None:
        def measure() -> dict[str, float]:
            found = self.optimizer.diagnose()
            measured = {**found.of_step(), **self.optimizer.measure_step()}
            return {"loss": float(loss.detach()), **{name: float(value) for name, value in measured.items()}}

        self.audience.tell(StepDone(task, epoch, self.position.done, measure))

    # Measuring

    def _measure_start(self) -> None:
        with self.watch.phase("evaluation"):
            every = self.examiner.row(range(len(self.plan.stream)), "test")
        self.outcome.initial_accuracy = every
        self.outcome.accuracy_before = [every[0], *[None] * (len(every) - 1)]
        if self.plan.stream[0].validation is not None:
            self.outcome.validation_accuracy = []

    def _evaluate(self, stage: Stage) -> None:
        """Measure every task seen, and the next one before it is learnt."""
        last, tasks = stage.tasks[-1], len(self.plan.stream)
        with self.watch.phase("evaluation"):
            row = self.examiner.row(range(last + 1), "test")
            held_out = (
                None if self.outcome.validation_accuracy is None else self.examiner.row(range(last + 1), "validation")
            )
            if last + 1 < tasks:
                self.outcome.accuracy_before[last + 1] = self.examiner.row([last + 1], "test")[last + 1]
        append_row(self.outcome.accuracy, row, last)
        self.audience.tell(Evaluated(last, "test", row, mean(row)))
        if held_out is not None and self.outcome.validation_accuracy is not None:
            append_row(self.outcome.validation_accuracy, held_out, last)
            self.audience.tell(Evaluated(last, "validation", held_out, mean(held_out)))

    def _count_memory(self) -> None:
        here = peak_memory(self.device)
        if here is not None:
            self.outcome.peak_memory_bytes = max(here, self.outcome.peak_memory_bytes or 0)

    # Numbers that are none

    @contextmanager
    def _diverging(self) -> Iterator[None]:
        """A refusal because of numbers that are none is a divergence, whoever noticed it first."""
        try:
            yield
        except ValueError as error:
            pipeline = self.optimizer.pipeline
            held = [*self.model.parameters(), *tensors_in((pipeline.state, pipeline.running))]
            if all(bool(tensor.isfinite().all()) for tensor in held):
                raise
            raise FloatingPointError(str(error)) from error

    def _check_finite(self) -> None:
        if not all(bool(parameter.isfinite().all()) for parameter in self.model.parameters()):
            raise FloatingPointError("The parameters are no longer numbers. Lower the learning rate.")

    # Saving

    def _save_or_stop(self) -> None:
        self._save()
        if self.should_stop():
            raise stopped_after(self.position.done, self.steps)

    def _save(self) -> None:
        self.saved = time.monotonic()
        if self.checkpoint is None:
            return
        self._count_memory()
        with self.watch.phase("checkpoints"):
            self.checkpoint.save(
                {
                    "position": vars(self.position),
                    "model": self.model.state_dict(),
                    "optimizer": self.optimizer.state_dict(),
                    "random": random_states(self.device),
                    "outcome": self.outcome.as_dict(),
                    "means": self.means.state_dict(),
                }
            )
        self.saved = time.monotonic()

    def _restore(self, found: Restored, where: Path, notice: Callable[[str], None]) -> None:
        for sentence in found.damaged:
            notice(sentence)
        state: dict[str, Any] | None = found.state
        if state is None:
            return
        try:
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.position, self.outcome = Position(**state["position"]), Outcome(**state["outcome"])
            self.means.load_state_dict(state["means"], self.device)
            set_random_states(state["random"], self.device)
        except (ValueError, TypeError, KeyError, RuntimeError) as error:
            raise CheckpointError(
                f"Expected the checkpoint of this run in {where}, got one that does not fit: {error}. Go on with the version "
                "that wrote it, or delete the checkpoint there to start over."
            ) from error
        self.watch = Stopwatch(partial(wait_for, self.device), self.outcome.seconds_by_phase)

    def _first_task(self) -> torch.optim.Optimizer | Literal["own"]:
        rate = self.plan.first_task_lr
        return "own" if rate is None else torch.optim.SGD(self.model.parameters(), lr=rate)


@final
class _PredictTask(PredictTask):
    """Answers a batch (x, y, task) with the head of its task: a number, or a tensor of the same number for each sample."""

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        x, y, _ = batch
        return model(x, task=self.task_of(batch)), y

    def task_of(self, batch: Batch) -> int:
        task = batch[2]
        return int(task[0]) if isinstance(task, Tensor) else task

    def as_task(self, batch: Batch, task: TaskName) -> Batch:
        return batch[0], batch[1], task


predict_task = _PredictTask()
"""How the models of all benchmarks answer."""


def plain_arithmetic() -> AbstractContextManager[None]:
    """float32 as it is written, and on a GPU the same algorithms every time."""
    return Precision().arithmetic()
