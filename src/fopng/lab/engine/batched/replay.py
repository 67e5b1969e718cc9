"""Rehearsal of R runs: samples to keep, and gradients on kept samples during a step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import final

import torch
from torch import Tensor

from fopng.core.batch import Batch, TaskName, sample_count, take
from fopng.core.kernels import usable
from fopng.core.likelihood import Categorical
from fopng.core.vector import Vector
from fopng.curvature.estimate import output_sensitivity
from fopng.curvature.low_rank import join_rows
from fopng.gradients.per_sample import PerSampleGradients
from fopng.lab.engine.batched.data import StackedStream
from fopng.lab.engine.batched.model import StackedModel
from fopng.lab.engine.stages import predict_task
from fopng.memory.replay_draws import FEW, KEYS, RANKS, Learnt, Sampled, same_answers
from fopng.memory.replay_samples import Drawn
from fopng.optim.replay_base import stacked
from fopng.optim.undisturbed import evaluating

ASKED = 64
"""Samples of each run in one forward pass: a convolution of many runs needs much memory."""

IN_A_PASS = 256
"""Samples of each run that are rehearsed in one pass at most, where several small draws are joined."""


@final
@dataclass(frozen=True)
class StackedTaskSamples:
    """The samples of a task of R runs, drawn as each run would draw them alone.

    Args:
        source: the model.
        stream: the training samples.
    """

    source: PerSampleGradients
    stream: StackedStream

    def draw(self, count: int | None) -> list[Sampled]:
        """Some samples of each run."""
        samples, total = self.stream.samples, len(self.stream.samples)
        drawn = [torch.randint(RANKS, (total,), generator=g) for g in self.stream.generators]
        ranks = torch.stack(drawn).to(self._device)
        found, index = ranks.topk(total if count is None else min(count, total))
        return [Sampled((*samples.rows(index), self.stream.task), found)]

    def check(self, batch: Batch) -> None:
        """The samples of a benchmark have targets that fit."""

    def key(self) -> Tensor:
        """A random number of each run, `[R]`."""
        return torch.stack([torch.randint(KEYS, (), generator=g) for g in self.stream.generators]).to(self._device)

    def learnt(self) -> Learnt:
        """The number of the task, which chooses its head."""
        return Learnt(self.stream.task)

    def as_task(self, batch: Batch, task: TaskName) -> Batch:
        """A batch as if it were of another task."""
        return predict_task.as_task(batch, task)

    def answers(self, batch: Batch) -> Tensor:
        """What the models answer now, `[R, n, outputs]`."""
        return torch.cat([self._asked(part) for part in _parts(batch, 1)], 1)

    def answered_alike(self, batch: Batch, tasks: Sequence[TaskName]) -> bool:
        """Whether the models answer a few samples alike for all these tasks."""
        few = take(batch, torch.arange(min(FEW, sample_count(batch, 1))), 1)
        return same_answers([self._asked(self.as_task(few, task)) for task in tasks])

    def alike(self, answers: Sequence[Tensor]) -> bool:
        """Whether all answers are the same, to the bit."""
        return same_answers(answers)

    def sensitivity(self, samples: int | None) -> Vector:
        """The mean over samples of `|d |outputs|^2 / d theta|`."""
        return output_sensitivity(self.source, self.stream, samples=samples)

    def _asked(self, batch: Batch) -> Tensor:
        return self.source.answers(batch, parameters=self.stream.parameters)[0]

    @property
    def _device(self) -> torch.device:
        return self.stream.alive.device


def _parts(batch: Batch, axis: int) -> Iterator[Batch]:
    for rows in torch.arange(sample_count(batch, axis)).split(ASKED):
        yield take(batch, rows, axis)


@final
class StackedRehearser:
    """The models of R runs during a step, for methods that rehearse.

    Args:
        model: the weights.
        keys: of the dropout masks, `[R]`; None without dropout.
    """

    def __init__(self, model: StackedModel, keys: Tensor | None) -> None:
        self._model, self._keys = model, keys

    def divergence(self, drawn: Drawn) -> Tensor:
        """How far the answers to these samples are now from those that are to be answered, dropout off: the mean, `[R]`."""
        x, _, task = drawn.batch
        assert drawn.answers is not None
        with evaluating(self._model.template):
            outputs = self._model.logits(x, int(task))
        return (Categorical().divergence(outputs, drawn.answers.beside(outputs), 2) * drawn.shares).sum(-1)

    def gradient(self, drawn: Drawn) -> Vector:
        """The gradient of the loss on these samples, of the parameters that they reach."""
        return self._differentiated(drawn, self._model.leaves(), self._keys)

    def gradients(self, drawn: Sequence[Drawn]) -> Vector:
        """The gradient on each of these draws, `[R, k, *shape]`; small alike draws are joined in one pass."""
        found = [self._of_group(group) for group in _small_groups(drawn, self._model.theta)]
        return found[0] if len(found) == 1 else reduce(join_rows, found)

    def _of_group(self, drawn: Sequence[Drawn]) -> Vector:
        tasks = [each.batch[2] for each in drawn]
        heads = self._model.heads(tasks) if len(drawn) > 1 else None
        if heads is None:
            return stacked([self.gradient(each) for each in drawn])
        x, y, shares = (
            torch.stack(parts, 1).flatten(0, 1)
            for parts in zip(*((each.batch[0], each.batch[1], each.shares) for each in drawn), strict=True)
        )
        keys = None if self._keys is None else self._keys.repeat_interleave(len(drawn))
        leaves = self._model.leaves(self._model.repeated(heads))
        found = self._differentiated(Drawn((x, y, tasks[0]), shares, None), leaves, keys)
        rows = found.map(lambda part: part.unflatten(0, (-1, len(drawn)))).parts
        return Vector({**rows, **_by_head(rows, heads)}, 2)

    def _differentiated(self, drawn: Drawn, leaves: dict[str, Tensor], keys: Tensor | None) -> Vector:
        x, y, task = drawn.batch
        with torch.enable_grad():
            outputs = self._model.answers(leaves, x, task, keys)
        signal = drawn.signal(Categorical(), outputs.detach(), y)
        found = torch.autograd.grad(outputs, list(leaves.values()), signal, allow_unused=True)
        return Vector({name: g for name, g in zip(leaves, found, strict=True) if g is not None}, 1)

    def together(self, g: Vector) -> Vector:
        """The gradient itself: runs side by side are in one process."""
        return g


def _by_head(rows: dict[str, Tensor], heads: Sequence[Sequence[str]]) -> dict[str, Tensor]:
    """Move the gradients of the first head, `[R, k, *shape]`, to the head of each draw; zero for the other heads."""
    moved: dict[str, Tensor] = {}
    for number, names in enumerate(heads):
        for first, own in zip(heads[0], names, strict=True):
            if first in rows:
                moved.setdefault(own, torch.zeros_like(rows[first]))[:, number] = rows[first][:, number]
    return moved


def draws_in_a_pass(samples: int, draws: int, theta: Tensor) -> int:
    """How many draws of so many samples are joined; on a CPU one: more are no faster for the MLP, slower for the ConvNet."""
    return max(1, min(draws, IN_A_PASS // samples)) if theta.is_cuda or usable(theta) else 1


def _small_groups(drawn: Sequence[Drawn], theta: Tensor) -> Iterator[list[Drawn]]:
    """Consecutive draws of one shape and with targets of their own, as many as fit in one pass."""
    group: list[Drawn] = []
    for each in drawn:
        fits = len(group) < draws_in_a_pass(each.shares.shape[-1], len(drawn), theta)
        if group and not (fits and _told_by_targets(each, group[0]) and _shapes(each) == _shapes(group[0])):
            yield group
            group = []
        group.append(each)
    yield group


def _told_by_targets(*drawn: Drawn) -> bool:
    return all(each.answers is None and each.batch[1] is not None for each in drawn)


def _shapes(drawn: Drawn) -> tuple[torch.Size, ...]:
    return drawn.batch[0].shape, drawn.batch[1].shape, drawn.shares.shape
