"""R runs as one: weights, method, generators, and which of them still have finite numbers."""

from collections.abc import Sequence
from typing import Any, final

import torch

from fopng.core.batch import NotFinite
from fopng.core.tree import bytes_of, from_plain, map_tree, to_plain
from fopng.gradients.per_sample import PerSampleGradients
from fopng.lab.data.splits import ArraySplit
from fopng.lab.engine.batched.data import StackedSamples
from fopng.lab.engine.batched.model import NotStackable, StackedModel, stack_methods, stack_rates
from fopng.lab.engine.plan import Plan
from fopng.lab.engine.seeds import Seeds
from fopng.lab.engine.stages import Stage, in_precision, predict_task
from fopng.optim.pipeline import Pipeline

TRIAL = 2
"""Samples of the trial that a stacked model must pass before training."""


@final
class StackedRuns:
    """Runs that are trained together; `NotStackable` says why they cannot be.

    Args:
        plans: the runs.
        device: where they are done.

    Attributes:
        alive: which of them still have finite numbers, `[R]`.
        sample_bytes: the memory that estimates on one sample of one run take.
        gradient_bytes: the memory that one stored gradient of one run takes.
    """

    def __init__(self, plans: Sequence[Plan], device: torch.device) -> None:
        check_alike(plans)
        self.plans, self.device = plans, device
        seeds = [Seeds(plan.seed) for plan in plans]
        precision = plans[0].precision
        models = [
            plan.make_model(own.weights).to(device, precision.dtype) for plan, own in zip(plans, seeds, strict=True)
        ]
        self.generators = [torch.Generator().manual_seed(own.fisher) for own in seeds]
        optimizers = [
            plan.make_optimizer(model, first_task="own", predict=predict_task, generator=generator)
            for plan, model, generator in zip(plans, models, self.generators, strict=True)
        ]
        layout = optimizers[0].layout
        self.model = StackedModel(models, layout, [own.dropout for own in seeds], precision)
        self.pipeline = Pipeline(stack_methods([o.method for o in optimizers], device, precision.dtype))
        self.rate = stack_rates([float(o.param_groups[0]["lr"]) for o in optimizers], self.model.theta)
        firsts = [plan.first_task_lr for plan in plans if plan.first_task_lr is not None]
        self.first_rate = stack_rates(firsts, self.model.theta) if firsts else None
        self.source = PerSampleGradients(models[0], predict=predict_task, layout=layout)
        self.alive = torch.ones(len(plans), dtype=torch.bool, device=device)
        self.stages = [
            [
                Stage(number, plan.stages[number], plan.stream, plan.batch_size, own, device, precision.dtype)
                for plan, own in zip(plans, seeds, strict=True)
            ]
            for number in range(len(plans[0].stages))
        ]
        self.sample_bytes, self.gradient_bytes = self._tried()

    @property
    def count(self) -> int:
        """The number of runs, R."""
        return len(self.plans)

    def verify(self, samples: StackedSamples, task: int) -> bool:
        """Check the model's gradients for a task on a run with finite numbers, before they are used; False if none has any."""
        while self.mask_diverged():
            few = samples.rows(torch.zeros(self.count, TRIAL, dtype=torch.int64, device=self.device))
            try:
                self.source.bytes_per_sample((*few, task), self.model.weights)
            except NotFinite:
                # The check uses the first run: alone, it would have ended here.
                self.alive[0] = False
            else:
                return True
        return False

    def mask_diverged(self) -> bool:
        """Give diverged runs the weights of one that has not diverged, so that they cannot raise; False if all have."""
        going = self.alive.nonzero().flatten().tolist()
        if going and len(going) < self.count:
            self.model.theta[~self.alive] = self.model.theta[going[0]].clone()
        return bool(going)

    def note_diverged(self) -> None:
        """Mark runs whose weights are not finite as diverged."""
        self.alive.logical_and_(self.model.theta.isfinite().all(-1))

    def state_dict(self) -> dict[str, Any]:
        """Everything that training changes."""
        return {
            "theta": self.model.theta,
            "state": to_plain(self.pipeline.state),
            "running": to_plain(self.pipeline.running),
            "alive": self.alive,
            "generators": [generator.get_state() for generator in self.generators],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take a state over."""
        self.model.theta.copy_(state["theta"])
        found = from_plain(state["state"]), from_plain(state["running"])
        self.pipeline.state, self.pipeline.running = map_tree(lambda tensor: tensor.to(self.device), found)
        self.alive.copy_(state["alive"])
        for generator, held in zip(self.generators, state["generators"], strict=True):
            generator.set_state(held)

    def _tried(self) -> tuple[int, int]:
        """Try a step and an estimate of all runs at once; the bytes of one sample and of one gradient."""
        train = self.plans[0].stream[0].train
        x, y = train.read(torch.zeros(TRIAL, dtype=torch.int64), self.device)
        x = in_precision(x, self.model.theta.dtype).expand(self.count, *x.shape)
        y = y.expand(self.count, *y.shape)
        task = self.plans[0].stages[0][0]
        try:
            leaves = self.model.leaves()
            self.model.template.train()
            answers = self.model(leaves, x, task, self.model.next_keys())
            torch.autograd.grad(answers.sum(), list(leaves.values()), allow_unused=True)
            batch = (x, y, task)
            [found] = self.source.gradients(batch, "ground-truth", parameters=self.model.weights)
            sample = self.source.bytes_per_sample(batch, self.model.weights) // self.count
            return sample, bytes_of(found) // (TRIAL * self.count)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, ValueError) as error:
            name = type(self.model.template).__name__
            raise NotStackable(f"{name} cannot be asked for several runs at once: {_first_line(error)}") from error


def check_alike(plans: Sequence[Plan]) -> None:
    """Raise unless the runs differ in seed and settings alone."""
    first = plans[0]
    for plan in plans:
        for name in ("stages", "epochs", "batch_size", "precision"):
            if getattr(plan, name) != getattr(first, name):
                raise NotStackable(f"Expected runs with the same {name} side by side, got different ones.")
        if (plan.first_task_lr is None) != (first.first_task_lr is None):
            raise NotStackable("Expected first tasks learnt in one way side by side, got different ones.")
        if any(len(tasks) > 1 for tasks in plan.stages):
            raise NotStackable("Expected one task at a time, got several together (joint training).")
        if not all(isinstance(split, ArraySplit) for task in plan.stream for split in task.splits):
            raise NotStackable("Expected tasks in arrays, got a dataset that may draw its samples at random.")


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:200]
