"""The batched twin of the training loop: the same stages, orders, draws and measurements for R runs at once."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, final

import torch
from torch import Tensor

from fopng.checkpoint import Checkpoint
from fopng.observers import Audience, EpochStarted, Observer, RunEnded, RunStarted, StepDone, TaskEnded, TaskStarted
from fopng.persample import GradientSource
from fopng.randomness import drawn_from, random_states, set_random_states
from fopng.replicas.samples import StackedSamples
from fopng.replicas.stacking import NotStackable, StackedModel, stack_methods, stack_rates
from fopng.replicas.steps import Stepper
from fopng.replicas.task import ReplicaTask
from fopng.train.loop import SAVE_SECONDS, diagnosed_every, plain_arithmetic, predict_task
from fopng.train.plan import Interrupted, Outcome, Plan, Row
from fopng.train.seeds import Seeds
from fopng.train.stages import WHOLE_BATCH, Stage


def train_replicas(
    plans: Sequence[Plan],
    *,
    device: torch.device,
    checkpoint: Checkpoint | None = None,
    observers: Iterable[Observer] = (),
    should_stop: Callable[[], bool] = lambda: False,
    save_seconds: float = SAVE_SECONDS,
    capture: bool | None = None,
) -> list[Outcome]:
    """Do several runs of one benchmark and one method together, or the rest of them.

    Args:
        plans: the runs; they may differ in seed and in numeric settings. `NotStackable` where they differ in more.
        device: where the weights and the data live.
        checkpoint: where they are saved together while they go on.
        observers: who is told what happens.
        should_stop: asked after every step; when it says yes the runs are saved and `Interrupted` raised.
        save_seconds: the time between checkpoints; there is one at the end of each task besides.
        capture: replay the steps from a CUDA graph; by default on CUDA.
    """
    seeds = Seeds(plans[0].seed)
    captured = device.type == "cuda" if capture is None else capture
    with drawn_from(seeds.dropout, device), plain_arithmetic():
        wave = _Wave(plans, device, checkpoint, Audience(observers), should_stop, save_seconds, captured)
        return wave.watched()


@final
class _Wave:
    def __init__(
        self,
        plans: Sequence[Plan],
        device: torch.device,
        checkpoint: Checkpoint | None,
        audience: Audience,
        should_stop: Callable[[], bool],
        save_seconds: float,
        capture: bool,
    ) -> None:
        _check_alike(plans)
        self.plans, self.device, self.checkpoint, self.audience = plans, device, checkpoint, audience
        self.should_stop, self.save_seconds, self.capture = should_stop, save_seconds, capture
        self.seeds = [Seeds(plan.seed) for plan in plans]
        models = [plan.make_model(seeds.weights).to(device) for plan, seeds in zip(plans, self.seeds, strict=True)]
        self.generators = [torch.Generator().manual_seed(seeds.fisher) for seeds in self.seeds]
        optimizers = [
            plan.make_optimizer(model, first_task="own", predict=predict_task, generator=generator)
            for plan, model, generator in zip(plans, models, self.generators, strict=True)
        ]
        self.layout = optimizers[0].layout
        self.method = stack_methods([optimizer.method for optimizer in optimizers], device)
        self.method.attach(self.layout)
        self.lr = stack_rates(optimizers, device)
        self.model = StackedModel(models, self.layout)
        self.source = GradientSource(models[0], predict=predict_task, layout=self.layout)
        self.alive = torch.ones(len(plans), dtype=torch.bool, device=device)
        self.stages = [self._stages(number) for number in range(len(plans[0].stages))]
        self.position = {"stage": 0, "epoch": 0, "step": 0, "done": 0}
        self.outcomes = [Outcome() for _ in plans]
        self._forget_removed()
        self.seconds: dict[str, float] = {}
        self.saved = time.monotonic()
        self._tests: dict[tuple[str, int], StackedSamples] = {}

    def _stages(self, number: int) -> list[Stage]:
        pairs = zip(self.plans, self.seeds, strict=True)
        return [Stage(number, p.stages[number], p.stream, p.batch_size, seeds, self.device) for p, seeds in pairs]

    @property
    def steps(self) -> int:
        """Steps of each run."""
        return self.plans[0].epochs * sum(stages[0].steps for stages in self.stages)

    def watched(self) -> list[Outcome]:
        """Do the runs; observers learn how they ended, in whatever way."""
        self._restore()
        plan, started = self.plans[0], time.monotonic()
        how: Literal["finished", "interrupted", "failed"] = "failed"
        label = plan.label if len(self.plans) == 1 else f"{plan.label} and {len(self.plans) - 1} more"
        self.audience.tell(RunStarted(label, len(plan.stream), self.steps, self.position["done"], plan.facts))
        try:
            self._run()
            how = "finished"
        except (Interrupted, KeyboardInterrupt):
            how = "interrupted"
            raise
        finally:
            self.audience.tell(RunEnded(how, time.monotonic() - started))
        for outcome in self.outcomes:
            outcome.seconds_by_phase = {name: value / len(self.plans) for name, value in self.seconds.items()}
        return self.outcomes

    def _run(self) -> None:
        if self.outcomes[0].initial_accuracy is None:
            self._measure_start()
        for number in range(self.position["stage"], len(self.stages)):
            self._learn(number)
            self._measure(number)
            self._note_diverged()
            self.position |= {"stage": number + 1, "epoch": 0, "step": 0}
            self._save()

    # Learning

    def _learn(self, number: int) -> None:
        stages, task, started = self.stages[number], self.stages[number][0].tasks[0], time.monotonic()
        self.audience.tell(TaskStarted(task))
        samples = StackedSamples([stage.stream[task].train for stage in stages], self.device)
        at_hand = ReplicaTask(self.source, self.model.theta, samples, task, self.generators, self.alive)
        first_rate = self.plans[0].first_task_lr if number == 0 else None
        plain = first_rate is not None
        rate = self.lr if first_rate is None else first_rate
        stepper = Stepper(self.model, None if plain else self.method, rate, self.alive)
        while self.position["epoch"] < self.plans[0].epochs:
            self._learn_epoch(number, task, samples, at_hand, stepper)
            self.position |= {"epoch": self.position["epoch"] + 1, "step": 0}
        with torch.no_grad(), self._phase("end of task"):
            self.method.end_task(at_hand)
        self._note_removed()
        self.audience.tell(TaskEnded(task, time.monotonic() - started))

    def _learn_epoch(
        self, number: int, task: int, samples: StackedSamples, at_hand: ReplicaTask, stepper: Stepper
    ) -> None:
        stages, epoch = self.stages[number], self.position["epoch"]
        self.audience.tell(EpochStarted(task, epoch))
        if self.position["step"] == 0 and stepper.method is not None:
            with torch.no_grad(), self._phase("refresh"):
                self.method.refresh(at_hand)
        orders = torch.stack([stage.order(epoch, task) for stage in stages]).to(self.device)
        every = diagnosed_every(stages[0].steps, self.plans[0].epochs)
        offset = epoch * stages[0].steps

        def after(step: int) -> None:
            self.position["step"] = step + 1
            self.position["done"] += 1
            if stepper.method is not None and (offset + step + 1) % every == 0:
                self._diagnose(stepper)
            if self.audience:
                measure = lambda: {"loss": float(stepper.loss[self.alive].mean())}  # noqa: E731
                self.audience.tell(StepDone(task, epoch, self.position["done"], measure))
            if time.monotonic() - self.saved >= self.save_seconds or self.should_stop():
                self._save_or_stop()

        self.model.template.train()
        with self._phase("train"):
            stepper.walk(samples, orders, stages[0].batch_size, task, self.position["step"], after, self.capture)

    # Measuring

    @torch.no_grad()
    def _diagnose(self, stepper: Stepper) -> None:
        projector = self.method.projector
        if projector is None or projector.basis.count == 0:
            return
        fraction = projector.removed(stepper.g).norm(dim=-1) / stepper.g.norm(dim=-1)
        counts = fraction.isfinite()
        self.removed += torch.where(counts, fraction, 0.0)
        self.removed_count += counts

    def _forget_removed(self) -> None:
        self.removed = torch.zeros(len(self.plans), device=self.device)
        self.removed_count = torch.zeros(len(self.plans), dtype=torch.int64, device=self.device)

    def _note_removed(self) -> None:
        totals, counts = self.removed.tolist(), self.removed_count.tolist()
        for outcome, total, count in zip(self.outcomes, totals, counts, strict=True):
            outcome.removed_fraction_by_task.append(total / count if count else None)
        self._forget_removed()

    def _measure_start(self) -> None:
        tasks = len(self.plans[0].stream)
        held_out = self.plans[0].stream[0].validation is not None
        for outcome, row in zip(self.outcomes, self._rows(range(tasks), "test"), strict=True):
            outcome.initial_accuracy = row
            outcome.accuracy_before = [row[0], *[None] * (tasks - 1)]
            outcome.validation_accuracy = [] if held_out else None

    def _measure(self, number: int) -> None:
        last = self.stages[number][0].tasks[0]
        rows = self._rows(range(last + 1), "test")
        held_out = None if self.outcomes[0].validation_accuracy is None else self._rows(range(last + 1), "validation")
        ahead = self._rows([last + 1], "test") if last + 1 < len(self.plans[0].stream) else None
        going = self.alive.tolist()
        for r, outcome in enumerate(self.outcomes):
            if not going[r] or outcome.status == "diverged":
                continue
            outcome.accuracy.append(rows[r])
            if held_out is not None and outcome.validation_accuracy is not None:
                outcome.validation_accuracy.append(held_out[r])
            if ahead is not None:
                outcome.accuracy_before[last + 1] = ahead[r][last + 1]

    def _rows(self, tasks: Iterable[int], part: Literal["test", "validation"]) -> list[Row]:
        """A row of accuracies for each run."""
        rows: list[list[float | None]] = [[None] * len(self.plans[0].stream) for _ in self.plans]
        self.model.template.eval()
        with self._phase("evaluation"):
            for task in tasks:
                for row, accuracy in zip(rows, self._accuracies(task, part).tolist(), strict=True):
                    row[task] = accuracy
        return [tuple(row) for row in rows]

    def _accuracies(self, task: int, part: Literal["test", "validation"]) -> Tensor:
        if (part, task) not in self._tests:
            splits = [getattr(plan.stream[task], part) for plan in self.plans]
            self._tests[part, task] = StackedSamples(splits, self.device)
        samples = self._tests[part, task]
        right = torch.zeros(len(self.plans), dtype=torch.int64, device=self.device)
        for x, y in samples.chunks(WHOLE_BATCH):
            right += (self.model.logits(x, task).argmax(-1) == y).sum(-1)
        return right.double() / len(samples)

    def _note_diverged(self) -> None:
        self.alive.logical_and_(self.model.theta.isfinite().all(-1))
        for outcome, going in zip(self.outcomes, self.alive.tolist(), strict=True):
            if not going:
                outcome.status = "diverged"

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started

    # Saving

    def _save_or_stop(self) -> None:
        self._save()
        if self.should_stop():
            raise Interrupted(self.position["done"], self.steps)

    def _save(self) -> None:
        if self.checkpoint is not None:
            with self._phase("checkpoints"):
                self.checkpoint.save(self._state())
        self.saved = time.monotonic()

    def _state(self) -> dict[str, Any]:
        return {
            "position": dict(self.position),
            "theta": self.model.theta,
            "method": self.method.state_dict(),
            "alive": self.alive,
            "removed": [self.removed, self.removed_count],
            "generators": [generator.get_state() for generator in self.generators],
            "random": random_states(self.device),
            "outcomes": [outcome.as_dict() for outcome in self.outcomes],
            "seconds": dict(self.seconds),
        }

    def _restore(self) -> None:
        state: dict[str, Any] | None = None if self.checkpoint is None else self.checkpoint.load().state
        if state is None:
            return
        self.position = state["position"]
        self.model.theta.copy_(state["theta"])
        self.method.load_state_dict(state["method"], self.layout, self.model.theta[0])
        self.alive.copy_(state["alive"])
        self.removed, self.removed_count = (tensor.to(self.device) for tensor in state["removed"])
        for generator, held in zip(self.generators, state["generators"], strict=True):
            generator.set_state(held)
        set_random_states(state["random"], self.device)
        self.outcomes = [Outcome(**outcome) for outcome in state["outcomes"]]
        self.seconds = state["seconds"]


def _check_alike(plans: Sequence[Plan]) -> None:
    """Raise unless the runs differ in seed and settings alone."""
    first = plans[0]
    for plan in plans:
        for name in ("stages", "first_task_lr", "epochs", "batch_size"):
            if getattr(plan, name) != getattr(first, name):
                raise NotStackable(f"Expected runs with the same {name} side by side, got different ones.")
        if any(len(tasks) > 1 for tasks in plan.stages):
            raise NotStackable(
                "Expected one task at a time, got several together (joint training). Run them one by one."
            )
