"""Avalanche: a plug-in that gives any method to its strategies."""

from collections.abc import Iterator
from typing import Any, final

import torch
from avalanche.benchmarks.utils.data_loader import collate_from_data_or_kwargs
from avalanche.core import SupervisedPlugin
from avalanche.models import avalanche_forward
from torch import Tensor, nn
from torch.utils.data import DataLoader

from fopng.core.batch import Batch, PredictTask, TaskName, predict_pairs
from fopng.optim.optimizer import ContinualOptimizer

WHOLE_BATCH = 256
"""Samples read at a time where no step is taken."""


@final
class _PredictExperience(PredictTask):
    """Answers Avalanche's batches (x, y, task labels) as its strategies do: by the heads of their tasks, where there are any."""

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        x, y, *_, labels = batch
        return avalanche_forward(model, x, labels), y

    def task_of(self, batch: Batch) -> int:
        return int(batch[-1][0])

    def as_task(self, batch: Batch, task: TaskName) -> Batch:
        assert isinstance(task, int)
        return (*batch[:-1], torch.full_like(batch[-1], task))


predict_experience = _PredictExperience()
"""How the models of Avalanche's strategies answer: the argument `predict` of an optimizer."""


@final
class ContinualPlugin(SupervisedPlugin[Any]):  # type: ignore[misc]  # Avalanche has no types
    """Tells the optimizer of a strategy about its experiences, each of which is a task.

    The Fisher before each epoch, the projection in the update, what is stored after each experience. Classifiers that grow and
    heads that are added are followed; the optimizer's whole state is in Avalanche's checkpoints.

    The optimizer must be made with `predict=predict_experience`, or a `predict` of one's own for batches (x, y, task labels).
    """

    def before_training_exp(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
        """Begin a task; the model has been adapted to it."""
        optimizer = _optimizer(strategy)
        optimizer.adopt_parameters()
        optimizer.begin_task(optimizer.tasks_done)

    def before_training_epoch(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
        """Estimate what the method needs of the task."""
        _optimizer(strategy).refresh(_ExperienceBatches(strategy))

    def after_training_exp(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
        """End the task."""
        _optimizer(strategy).end_task(_ExperienceBatches(strategy))


def _optimizer(strategy: Any) -> ContinualOptimizer:
    found = strategy.optimizer
    if not isinstance(found, ContinualOptimizer):
        raise TypeError(f"Expected a strategy with one of fopng's optimizers, got a {type(found).__name__}.")
    if found.predict is predict_pairs:
        raise TypeError(
            f"Expected a {type(found).__name__} that answers Avalanche's batches (x, y, task labels), got one for (x, y). "
            "Make it with predict=fopng.integrations.avalanche.predict_experience."
        )
    return found


@final
class _ExperienceBatches:
    """The samples of the experience at hand, and no others that a plug-in may rehearse, in order, on the strategy's device."""

    def __init__(self, strategy: Any) -> None:
        self._data, self._device = strategy.experience.dataset.train(), strategy.device

    def __iter__(self) -> Iterator[Batch]:
        made: dict[str, Any] = {}
        collate_from_data_or_kwargs(self._data, made)
        for batch in DataLoader(self._data, batch_size=WHOLE_BATCH, collate_fn=made["collate_fn"]):
            yield tuple(part.to(self._device) for part in batch)
