"""Samples of R runs to keep, and the gradients on them in the middle of a step."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from fopng.likelihood import Categorical
from fopng.persample import GradientSource
from fopng.replicas.samples import StackedSamples
from fopng.replicas.stacking import StackedModel
from fopng.samples import Drawn
from fopng.sampling import FEW, KEYS, RANKS, Learnt, Sampled, same_answers
from fopng.train.loop import predict_task
from fopng.types import Batch, TaskName, sample_count, take

ASKED = 64
"""Samples of each run that are asked about at a time: a convolution of many runs holds a lot."""


@final
@dataclass(frozen=True)
class StackedTaskSamples:
    """The samples of a task of R runs, drawn as each run would draw them alone.

    Args:
        source: the model.
        theta: the parameters now, `[R, p]`.
        samples: the training samples.
        number: of the task.
        generators: one a run.
        measure: gives the sensitivity of the answers.
    """

    source: GradientSource
    theta: Tensor
    samples: StackedSamples
    number: int
    generators: Sequence[torch.Generator]
    measure: Callable[[int | None], Tensor]

    def draw(self, count: int | None) -> list[Sampled]:
        """Some samples of each run."""
        total = len(self.samples)
        ranks = torch.stack([torch.randint(RANKS, (total,), generator=g) for g in self.generators]).to(
            self.theta.device
        )
        found, index = ranks.topk(total if count is None else min(count, total))
        return [Sampled((*self.samples.rows(index), self.number), found)]

    def check(self, batch: Batch) -> None:
        """The samples of a benchmark have targets that fit."""

    def key(self) -> Tensor:
        """A random number of each run, `[R]`."""
        return torch.stack([torch.randint(KEYS, (), generator=g) for g in self.generators]).to(self.theta.device)

    def learnt(self) -> Learnt:
        """The number of the task; its head is chosen by that."""
        return Learnt(self.number, [])

    def as_task(self, batch: Batch, task: TaskName) -> Batch:
        """A batch as if it were of another task."""
        return predict_task.as_task(batch, task)

    def answers(self, batch: Batch) -> Tensor:
        """What the models answer now, `[R, n, outputs]`."""
        return torch.cat([self._asked(part) for part in _parts(batch, self.theta.dim() - 1)], self.theta.dim() - 1)

    def answered_alike(self, batch: Batch, tasks: Sequence[TaskName]) -> bool:
        """By asking."""
        few = take(batch, torch.arange(min(FEW, sample_count(batch, 1))), 1)
        return same_answers([self._asked(self.as_task(few, task)) for task in tasks])

    def alike(self, answers: Sequence[Tensor]) -> bool:
        """Whether all answers are the same, to the bit."""
        return same_answers(answers)

    def sensitivity(self, samples: int | None) -> Tensor:
        """The mean over samples of `|d |outputs|^2 / d theta|`, `[R, p]`."""
        return self.measure(samples)

    def _asked(self, batch: Batch) -> Tensor:
        return self.source.answers(batch, parameters=self.theta)[0]


def _parts(batch: Batch, axis: int) -> Iterator[Batch]:
    for rows in torch.arange(sample_count(batch, axis)).split(ASKED):
        yield take(batch, rows, axis)


@final
class StackedRehearser:
    """The models of R runs in the middle of a step.

    Args:
        model: the weights.
        keys: of what is dropped, `[R]`; None where nothing is.

    Attributes:
        reached: the names of the parameters that had a gradient.
    """

    def __init__(self, model: StackedModel, keys: Tensor | None) -> None:
        self._model, self._keys = model, keys
        self.reached: set[str] = set()

    def gradient(self, drawn: Drawn) -> Tensor:
        """The gradient of the loss on these samples, `[R, p]`."""
        x, y, task = drawn.batch
        leaves = self._model.leaves()
        with torch.enable_grad():
            outputs = self._model.answers(leaves, x, task, self._keys)
        signal = drawn.signal(Categorical(), outputs.detach(), y)
        found = torch.autograd.grad(outputs, list(leaves.values()), signal, allow_unused=True)
        named = {name: g for name, g in zip(leaves, found, strict=True) if g is not None}
        self.reached |= named.keys()
        return self._model.layout.join(named)

    def together(self, g: Tensor) -> Tensor:
        """Runs side by side are in one process."""
        return g
