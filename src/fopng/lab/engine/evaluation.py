"""What runs answer to the samples of their tasks: how many rightly, and how far from what they answered when a task ended."""

from collections.abc import Callable, Collection, Iterable, Mapping
from math import isfinite
from typing import final

import torch
from torch import Tensor, nn

from fopng.lab.benchmarks.stream import TaskStream
from fopng.lab.data.splits import Split
from fopng.lab.engine.plan import Evaluation, Part, Row
from fopng.lab.engine.seeds import Seeds
from fopng.lab.engine.stages import in_precision, whole_split
from fopng.optim.undisturbed import evaluating

Answers = Iterable[tuple[Tensor, Tensor]]
"""What R runs answer, batch by batch, as logits `[R, n, ..., classes]`, with the targets `[R, n, ...]`."""


@final
class Evaluator:
    """Measures the accuracy on tasks, and in the same pass what was lost since each of them ended.

    Args:
        ask: what the runs answer to the samples of a task now.
        runs: how many there are.
        tasks: how many tasks there are.
    """

    def __init__(self, ask: Callable[[int, Part], Answers], runs: int, tasks: int) -> None:
        self._ask, self._runs, self._tasks = ask, runs, tasks
        self._kept: dict[str, Tensor] = {}

    @torch.no_grad()
    def evaluate(self, tasks: Iterable[int], part: Part, ended: Collection[int] = ()) -> list[Evaluation]:
        """Evaluate each run. The answers to tasks that have just ended are kept: later ones are compared with them."""
        found = {task: self._measure(task, part, task in ended).tolist() for task in tasks}

        def row(kind: int, run: int) -> Row:
            return tuple(_finite(found[task][kind][run]) if task in found else None for task in range(self._tasks))

        return [Evaluation(row(0, run), row(1, run)) for run in range(self._runs)]

    def _measure(self, task: int, part: Part, ended: bool) -> Tensor:
        """Accuracy and loss, `[2, R]`; the loss is NaN for a task that has not ended."""
        name = f"{part} {task}"
        old = self._kept.get(name)
        right, moved, answers, start = [], [], [], 0
        for outputs, targets in self._ask(task, part):
            right.append(outputs.argmax(-1) == targets)
            if ended:
                answers.append(outputs)
            elif old is not None:
                moved.append(divergence(outputs, old[:, start : start + outputs.shape[1]]))
            start += outputs.shape[1]
        share = _means(right)
        if ended:
            self._kept[name] = torch.cat(answers, 1)
        lost = _means(moved) if moved else torch.full_like(share, 0.0 if ended else torch.nan)
        return torch.stack([share, lost])

    def state_dict(self) -> dict[str, Tensor]:
        """The answers that later ones are compared with."""
        return dict(self._kept)

    def load_state_dict(self, state: Mapping[str, Tensor], device: torch.device) -> None:
        """Go on with these answers."""
        self._kept = {name: answers.to(device) for name, answers in state.items()}


def divergence(outputs: Tensor, answers: Tensor) -> Tensor:
    """`KL(p_old || p) = sum_c p_old (log p_old - log p)` of each answer, in nats and float64.

    Args:
        outputs: logits now, `[..., classes]`.
        answers: the old ones.
    """
    # classes first: softmax over many short rows takes three times as long
    now, old = (logits.movedim(-1, 0).double().contiguous().log_softmax(0) for logits in (outputs, answers))
    p = old.exp()
    return torch.where(p > 0, p * (old - now), 0.0).sum(0).clamp(min=0)


def _means(batches: list[Tensor]) -> Tensor:
    """Of each run's numbers, `[R]`. A quotient: what `mean` computes instead depends on the device."""
    numbers = torch.cat(batches, 1).flatten(1)
    return numbers.double().sum(1) / numbers.shape[1]


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


def answers_of(model: nn.Module, split: Split, task: int, seeds: Seeds, device: torch.device) -> Answers:
    """What one model answers to the samples of a split, with the head of their task."""
    dtype = next(model.parameters()).dtype
    with evaluating(model):
        for x, y in whole_split(split, seeds, device):
            yield model(in_precision(x, dtype), task=task)[None], y[None]


def split_of(stream: TaskStream, task: int, part: Part) -> Split:
    """A task's samples to measure on."""
    split = stream[task].test if part == "test" else stream[task].validation
    assert split is not None
    return split
