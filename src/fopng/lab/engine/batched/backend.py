"""Many runs of one benchmark and one method side by side: the same draws, orders and numbers as each alone."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

import torch
from torch import Tensor

from fopng.curvature.sampling import chunk_size, held_at_most
from fopng.lab.data.splits import Split
from fopng.lab.engine.backend import Backend
from fopng.lab.engine.batched.data import StackedSamples, StackedStream
from fopng.lab.engine.batched.replay import StackedTaskSamples
from fopng.lab.engine.batched.state import StackedRuns
from fopng.lab.engine.batched.step import Stepper
from fopng.lab.engine.evaluation import Answers, split_of
from fopng.lab.engine.loop import SAVE_SECONDS, Loop
from fopng.lab.engine.observers import Audience, Observer
from fopng.lab.engine.plan import Outcome, Part, Plan
from fopng.lab.engine.stages import Stage
from fopng.lab.engine.streams import StreamScheduler
from fopng.lab.storage.checkpoint import Checkpoint
from fopng.optim.diagnostics import diagnosis_of
from fopng.optim.task import Task
from fopng.optim.undisturbed import evaluating

STEPS_AT_A_TIME = 16
"""Steps after which another group of runs on the same device may go on."""


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
    streams: StreamScheduler | None = None,
) -> list[Outcome]:
    """Do several runs of one benchmark and one method together, or the rest of them.

    Args:
        plans: the runs; they may differ in seed and in numeric settings. `NotStackable` where they differ in more.
        device: where the weights and the data live.
        checkpoint: where they are saved together while they go on.
        observers: who is told what happens to all of them.
        own_observers: for each run, who is told what happens to it, as if it were alone.
        should_stop: asked after every step; when it says yes the runs are saved and `Interrupted` raised.
        notice: told what was found damaged and passed over.
        save_seconds: the time between checkpoints; there is one at the end of each task besides.
        capture: replay the steps from a CUDA graph; by default on CUDA.
        streams: shared with other groups of runs on the same device, which go on every few steps.
    """
    with plans[0].precision.arithmetic():
        backend = BatchedBackend(plans, device, capture=capture, streams=streams)
        own = [Audience(own) for own in own_observers] or [Audience(()) for _ in plans]
        return Loop(backend, own, Audience(observers), checkpoint, should_stop, save_seconds).run(notice)


@final
class BatchedBackend(Backend):
    """R runs as one model with weights `[R, p]`.

    Args:
        plans: the runs.
        device: where they are trained.
        capture: replay the steps from a CUDA graph; by default on CUDA.
        streams: shared with other groups of runs on the same device.
    """

    def __init__(
        self,
        plans: Sequence[Plan],
        device: torch.device,
        *,
        capture: bool | None = None,
        streams: StreamScheduler | None = None,
    ) -> None:
        self.plans, self.device = plans, device
        self.runs = runs = StackedRuns(plans, device)
        self.model, self.pipeline = runs.model, runs.pipeline
        self.stages = [stages[0] for stages in runs.stages]
        self.capture = device.type == "cuda" if capture is None else capture
        self.streams = StreamScheduler(device) if streams is None else streams
        self.sharers = self.streams.lanes
        self.held = held_at_most(device, self.sharers)
        # Answers alone hold about a quarter of what answers and gradients hold.
        self._chunk = chunk_size(max(1, runs.sample_bytes * runs.count // 4), device, self.held)
        self._tests: dict[tuple[Part, int], StackedSamples] = {}

    def begin_task(self, stage: Stage) -> None:
        runs, weights, task = self.runs, self.model.weights, stage.tasks[0]
        self.stage, self.task = stage, task
        self.samples = self._stacked([plan.stream[task].train for plan in self.plans])
        stream = StackedStream(self.samples, task, weights, runs.generators, runs.alive, self.held)
        self.at_hand = Task(runs.source, stream, StackedTaskSamples(runs.source, stream), weights.parts)
        plain = runs.first_rate is not None and stage.number == 0
        rate = runs.first_rate if plain and runs.first_rate is not None else runs.rate
        self.stepper = Stepper(self.model, self.pipeline, rate, runs.alive, plain=plain)
        runs.mask_diverged()

    def refresh(self) -> None:
        refreshed = not self.stepper.plain and self.pipeline.needs.refresh is not None
        if refreshed and self.runs.verify(self.samples, self.task):
            with torch.no_grad():
                self.pipeline.refresh(self.at_hand)
            self.stepper.forget_graph()

    def train_epoch(self, epoch: int, start: int, done: int, after_step: Callable[[], None]) -> None:
        stages = self.runs.stages[self.stage.number]
        orders = torch.stack([stage.order(epoch, self.task) for stage in stages]).to(self.device)
        self.model.step.fill_(done)
        self.model.template.train()

        def after(step: int) -> None:
            after_step()
            if step % STEPS_AT_A_TIME == 0:
                self.streams.end_slice()

        self.stepper.walk(self.samples, orders, self.stage.batch_size, self.task, start, after, self.capture)
        self.runs.note_diverged()
        self.runs.mask_diverged()

    def end_task(self) -> None:
        if not self.pipeline.needs.data or self.runs.verify(self.samples, self.task):
            with torch.no_grad():
                self.pipeline.end_task(self.at_hand)
        self.runs.note_diverged()

    def alive(self) -> list[bool]:
        return self.runs.alive.tolist()

    def answers(self, task: int, part: Part) -> Answers:
        if (part, task) not in self._tests:
            self._tests[part, task] = self._stacked([split_of(plan.stream, task, part) for plan in self.plans])
        with evaluating(self.model.template):
            for x, y in self._tests[part, task].chunks(self._chunk):
                yield self.model.logits(x, task), y

    def _stacked(self, splits: Sequence[Split]) -> StackedSamples:
        return StackedSamples(splits, self.device, self.model.theta.dtype)

    def loss(self) -> Tensor:
        return self.stepper.loss

    @torch.no_grad()
    def measure_step(self) -> dict[str, Tensor]:
        taken = self.stepper.taken
        return {} if taken is None or self.stepper.plain else self.pipeline.measured(taken)

    @torch.no_grad()
    def diagnose(self) -> dict[str, Tensor]:
        taken = None if self.stepper.plain else self.stepper.taken
        # on a GPU the eigenvalues of R Gram matrices take longer than an epoch
        found = diagnosis_of(taken, self.pipeline.state.memory, 0, condition=self.device.type == "cpu")
        return {**found.of_step(), **self.measure_step()}

    @torch.no_grad()
    def measure_task(self) -> dict[str, Tensor]:
        return self.pipeline.measured_task()

    def state_dict(self) -> dict[str, Any]:
        return self.runs.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.runs.load_state_dict(state)

    def wait(self) -> None:
        self.streams.wait()
