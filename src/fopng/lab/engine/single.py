"""One run: any method, any model, joint training, with the optimizer that users have."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, final

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fopng.core.tree import tensors_in
from fopng.lab.benchmarks.dropout import DropoutKeys, draws_by_key, dropout_key, further_key
from fopng.lab.engine.backend import Backend
from fopng.lab.engine.evaluation import Answers, answers_of, split_of
from fopng.lab.engine.loop import SAVE_SECONDS, Loop
from fopng.lab.engine.observers import Audience, Observer
from fopng.lab.engine.plan import Outcome, Part, Plan
from fopng.lab.engine.randomness import drawn_from, random_states, set_random_states
from fopng.lab.engine.seeds import Seeds
from fopng.lab.engine.stages import Stage, predict_task
from fopng.lab.storage.checkpoint import Checkpoint


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
        backend = SingleBackend(plan, device)
        loop = Loop(backend, [Audience(observers)], Audience(()), checkpoint, should_stop, save_seconds)
        return loop.run(notice)[0]


@final
class SingleBackend(Backend):
    """A model and its optimizer.

    Args:
        plan: the run.
        device: where they live.
    """

    def __init__(self, plan: Plan, device: torch.device) -> None:
        self.plans, self.plan, self.device = [plan], plan, device
        self.seeds = seeds = Seeds(plan.seed)
        self.model = plan.make_model(seeds.weights).to(device, plan.precision.dtype)
        rate = plan.first_task_lr
        self.optimizer = plan.make_optimizer(
            self.model,
            first_task="own" if rate is None else torch.optim.SGD(self.model.parameters(), lr=rate),
            predict=predict_task,
            generator=torch.Generator().manual_seed(seeds.fisher),
        )
        self.stages = [
            Stage(number, tasks, plan.stream, plan.batch_size, seeds, device, plan.precision.dtype)
            for number, tasks in enumerate(plan.stages)
        ]
        self._dropout_keys = DropoutKeys([seeds.dropout], device)
        self._has_dropout = draws_by_key(self.model)
        self._finite, self._loss = True, torch.tensor(torch.nan)

    def begin_task(self, stage: Stage) -> None:
        self.stage = stage
        with self._noticing_divergence():
            self.optimizer.begin_task(stage.number)

    def refresh(self) -> None:
        with self._noticing_divergence():
            self.optimizer.refresh(self.stage.whole())

    def train_epoch(self, epoch: int, start: int, done: int, after_step: Callable[[], None]) -> None:
        self.model.train()
        with self._noticing_divergence():
            for step, (head, x, y) in enumerate(self.stage.epoch(epoch, start), done):
                self._step(x, y, head, step)
                after_step()
            if not all(bool(parameter.isfinite().all()) for parameter in self.model.parameters()):
                raise FloatingPointError("The parameters are no longer finite. Lower the learning rate.")

    def _step(self, x: Tensor, y: Tensor, head: int, step: int) -> None:
        self.optimizer.zero_grad()
        # An ordinary module draws from the global generator; ours draw what many runs side by side can draw too.
        key = self._dropout_key(step) if self._has_dropout else None
        with dropout_key(key), self.plan.precision.passes(self.device):
            self._loss = cross_entropy(self.model(x, task=head), y)
        self._loss.backward()
        with dropout_key(None if key is None else further_key(key)):
            self.optimizer.step()

    def _dropout_key(self, step: int) -> Tensor:
        # filled, not copied, which would wait for the device
        return self._dropout_keys(torch.full((), step, dtype=torch.int64, device=self.device))[0]

    def end_task(self) -> None:
        with self._noticing_divergence():
            self.optimizer.end_task(self.stage.whole())

    def alive(self) -> list[bool]:
        return [self._finite]

    @contextmanager
    def _noticing_divergence(self) -> Iterator[None]:
        """A refusal because of numbers that are not finite is a divergence, whoever noticed it first."""
        try:
            yield
        except FloatingPointError:
            self._finite = False
        except ValueError:
            pipeline = self.optimizer.pipeline
            held = [*self.model.parameters(), *tensors_in((pipeline.state, pipeline.running))]
            self._finite = all(bool(tensor.isfinite().all()) for tensor in held)
            if self._finite:
                raise

    def answers(self, task: int, part: Part) -> Answers:
        return answers_of(self.model, split_of(self.plan.stream, task, part), task, self.seeds, self.device)

    def loss(self) -> Tensor:
        return self._loss.detach()

    def measure_step(self) -> dict[str, Tensor]:
        return self.optimizer.measure_step()

    def diagnose(self) -> dict[str, Tensor]:
        return {**self.optimizer.diagnose().of_step(), **self.optimizer.measure_step()}

    def measure_task(self) -> dict[str, Tensor]:
        return self.optimizer.pipeline.measured_task()

    def state_dict(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": random_states(self.device),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        set_random_states(state["random"], self.device)
