"""Lightning: a callback that tells the optimizers of a LightningModule about tasks."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities import CombinedLoader
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader

from fopng.core.batch import Batch
from fopng.optim.optimizer import ContinualOptimizer


@final
class ContinualTasks(pl.Callback):
    """Calls `begin_task`, `refresh` and `end_task`: every `fit` that ends is a task.

    Give each task a data module and a Trainer of its own, and all Trainers this one callback. `configure_optimizers` may
    return the same optimizer every time or make a new one: what the last one knew is handed on. Checkpoints are Lightning's,
    with the whole state of the optimizer in them: `fit(..., ckpt_path=...)` goes on within a task, and `restore` between two.
    """

    def __init__(self) -> None:
        self._states: list[dict[str, Any]] | None = None

    def restore(self, module: pl.LightningModule, checkpoint: str | Path) -> None:
        """Take over a checkpoint that was saved after a task: the next `fit` is the next task.

        Args:
            module: gets the weights.
            checkpoint: what `trainer.save_checkpoint` wrote.
        """
        saved = torch.load(checkpoint, map_location="cpu", weights_only=True)
        states = saved.get("optimizer_states", [])
        if any(state.get("fopng", {}).get("open") for state in states):
            raise ValueError(
                f"Expected a checkpoint saved after a task, got {checkpoint} from within one. Go on with: "
                f"trainer.fit(module, data, ckpt_path={str(checkpoint)!r})."
            )
        module.load_state_dict(saved["state_dict"])
        self._states = states

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Hand on what is known of earlier tasks; a checkpoint that `fit` is given comes after this, and counts."""
        optimizers = _optimizers(trainer)
        if self._states is None or all(optimizer.tasks_done for optimizer in optimizers):
            return
        if len(self._states) != len(trainer.optimizers):
            raise ValueError(
                f"Expected {len(self._states)} optimizers from configure_optimizers, as in the last task, "
                f"got {len(trainer.optimizers)}."
            )
        for optimizer, state in zip(trainer.optimizers, self._states, strict=True):
            if isinstance(optimizer, ContinualOptimizer):
                rates = [group["lr"] for group in optimizer.param_groups]
                optimizer.load_state_dict(state)
                # the learning rate is the new task's own
                for group, rate in zip(optimizer.param_groups, rates, strict=True):
                    group["lr"] = rate

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begin a task, or go on with one."""
        for optimizer in _optimizers(trainer):
            optimizer.begin_task(optimizer.tasks_done)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Estimate what the method needs of the task."""
        for optimizer in _optimizers(trainer):
            optimizer.refresh(_TaskBatches(trainer, pl_module))

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """End the task."""
        for optimizer in _optimizers(trainer):
            optimizer.end_task(_TaskBatches(trainer, pl_module))

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Keep what is known for the next Trainer; end a task whose last epoch a checkpoint brought along."""
        for optimizer in _optimizers(trainer):
            if optimizer.in_task:
                optimizer.end_task(_TaskBatches(trainer, pl_module))
        self._states = [optimizer.state_dict() for optimizer in trainer.optimizers]


def _optimizers(trainer: pl.Trainer) -> list[ContinualOptimizer]:
    found = [optimizer for optimizer in trainer.optimizers if isinstance(optimizer, ContinualOptimizer)]
    if not found:
        names = [type(optimizer).__name__ for optimizer in trainer.optimizers]
        raise TypeError(f"Expected configure_optimizers to return one of fopng's optimizers, got {names}.")
    if trainer.world_size > 1:
        raise ValueError(
            f"Expected one process, got {trainer.world_size}: each would estimate a Fisher of its own share of the data. "
            "Use Trainer(devices=1)."
        )
    return found


@final
class _TaskBatches:
    """The task's batches as `training_step` gets them: on the module's device, in the precision of the Trainer."""

    def __init__(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._trainer, self._module = trainer, module

    def __iter__(self) -> Iterator[Batch]:
        trainer = self._trainer
        loaders = tree_map(_own_walk, trainer.train_dataloader)
        for batch, _, _ in CombinedLoader(loaders, "max_size_cycle"):
            moved = trainer.strategy.batch_to_device(batch, self._module.device)
            yield trainer.precision_plugin.convert_input(moved)


def _own_walk(loader: Any) -> Any:
    """A loader that can be walked while the Trainer walks it: one with persistent workers would start the Trainer's walk over."""
    if not isinstance(loader, DataLoader) or not loader.persistent_workers:
        return loader
    order = {"sampler": loader.sampler} if loader.batch_sampler is None else {"batch_sampler": loader.batch_sampler}
    return DataLoader(
        loader.dataset,
        batch_size=loader.batch_size if loader.batch_sampler is None else 1,
        collate_fn=loader.collate_fn,
        num_workers=loader.num_workers,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        **order,
    )
