"""The drop-in optimizer: a method driven by anyone's model and training loop."""

from collections.abc import Callable, Collection, Iterable
from math import isfinite, nan
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from fopng.core.batch import Batch, Predict, predict_pairs
from fopng.core.layout import ParamLayout
from fopng.core.likelihood import Likelihood
from fopng.curvature.estimate import check_rewindable
from fopng.gradients.per_sample import GradientSource
from fopng.optim.arguments import check_arguments, check_samples, plain_task, warn_if_late
from fopng.optim.diagnostics import Diagnosis, Step, no_step
from fopng.optim.first_task import FirstOptimizer, FirstTask, check_first
from fopng.optim.flat import flat_values, held_gradients, put_back, refuse_nonfinite, subtract, widen
from fopng.optim.groups import Groups, make_groups, of_model, rate_of
from fopng.optim.method import Method
from fopng.optim.rehearsal import ModelRehearser
from fopng.optim.resize import grow_method, put_in_place, refuse_replaced, replaced_parameters
from fopng.optim.task_data import LoaderTask
from fopng.optim.undisturbed import undrawn, unrounded
from fopng.parallel.collectives import Peers, group_peers, peers_of, warn_if_not_shared

__all__ = ["ContinualOptimizer", "FirstTask", "Groups"]


class ContinualOptimizer(torch.optim.Optimizer):
    """A `torch.optim.Optimizer` that knows about tasks.

    `begin_task`, then for every epoch `refresh` and the usual steps, then `end_task`; the same for every method.

    Args:
        model: the model to train; its trainable parameters are optimized. Inside a `DistributedDataParallel`, the processes of
            that share the run: each has a shard of the data and of what is kept (docs/scaling.md).
        lr: the learning rate.
        method: the mathematics.
        first_task: what trains the first task.
        predict: how the model answers a batch.
        likelihood: what its outputs mean.
        groups: parameters with a learning rate of their own.
        generator: draws samples and labels; by default one seeded like torch's own.
    """

    def __init__(
        self,
        model: nn.Module,
        lr: float,
        method: Method,
        first_task: FirstTask,
        predict: Predict | None,
        likelihood: Likelihood | None,
        groups: Groups | None,
        generator: torch.Generator | None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(
                f"Expected a torch.nn.Module, got a {type(model).__name__}. Pass the model, not its parameters."
            )
        check_arguments(lr, predict, likelihood, generator)
        method.check()
        self.model, peers = peers_of(model)
        self.method = method
        self.layout = ParamLayout.of(self.model)
        self._list_parameters()
        self.predict = predict_pairs if predict is None else predict
        self._likelihood = likelihood
        # seeded like the global generator, without drawing from it
        self.generator = torch.Generator().manual_seed(torch.initial_seed()) if generator is None else generator
        self.tasks_done, self.steps = 0, 0
        # when the task at hand began; None where a state does not say
        self._steps_before: int | None = 0
        self._open = False
        self._task: int | str | None = None
        self._finite: Tensor | None = None
        self._last: Step | None = None
        self._kind: tuple[object, ...] | None = None
        super().__init__(make_groups(groups, self._parameters), {"lr": lr})
        self._rate()
        self._join(peers)
        self._first = FirstOptimizer.choose(first_task, self._parameters, method.own_start, self.model)

    def share(self, group: ProcessGroup | None = None) -> None:
        """Share the run with other processes, each of which calls this; done already for a `DistributedDataParallel` model.

        For a model that is wrapped later (by a framework), or whose gradients are averaged by hand.

        Args:
            group: of `torch.distributed`; None for all processes.
        """
        if self.steps or self.tasks_done or self._open:
            raise RuntimeError("A run is shared before the first task. Call share() right after the optimizer is made.")
        self._join(group_peers(group, self._parameters[0].device))

    # The life cycle

    def begin_task(self, task: int | str | None = None) -> None:
        """Start a task; parameters that the model got since (a new head) join in.

        Args:
            task: its name or number, to tell a resumed task from a forgotten `end_task`.
        """
        task = plain_task(task)
        if self._open and (task is None or task != self._task):
            raise RuntimeError(f"Task {self._task!r} has not been ended. Call end_task(loader) before begin_task.")
        self._raise_nonfinite()
        warn_if_not_shared(self.peers, stacklevel=2)
        self._follow_model()
        if not self._open and self.tasks_done:
            self._steps_before = self.steps
        self._open, self._task = True, task
        for parameter in self._parameters:
            # a stale gradient would make another task's head take part in this one
            parameter.grad = None

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Give parameters of the model settings of their own, such as a learning rate."""
        super().add_param_group({**param_group, "params": of_model(param_group["params"], self.model)})

    def adopt_parameters(self) -> None:
        """Go on with parameters that were replaced, by ones of the same shape or with more rows (a classifier that grows).

        Between two tasks. The first rows are the old ones, of which all that is known stays; about new ones it is zero.
        """
        self._raise_nonfinite()
        named = dict(self.model.named_parameters())
        replaced = replaced_parameters(self.layout.names, self._parameters, named)
        if not replaced:
            return
        if self._open:
            raise RuntimeError(f"Task {self._task!r} has not been ended. Call end_task before adopt_parameters.")
        layout = ParamLayout({name: named[name].shape for name in self.layout.names if name in named})
        grow_method(self.method, layout)
        for optimizer in (self, *([] if self._first is None else [self._first.optimizer])):
            put_in_place(optimizer, replaced)
        self.layout = layout
        self._list_parameters()
        self._attach()

    def refresh(self, batches: Iterable[Batch]) -> None:
        """Estimate what the method needs of the new task, once an epoch; nothing while another optimizer trains it.

        Args:
            batches: the task's data, an iterable that can be walked more than once.
        """
        check_rewindable(batches)
        self._raise_nonfinite()
        self._follow_model()
        if self._first_at_work is None:
            with torch.no_grad(), undrawn(self._parameters), unrounded(self._parameters):
                self.method.refresh(self._data(batches))

    def end_task(self, batches: Iterable[Batch]) -> None:
        """End a task: store gradients, consolidate Fishers, whatever the method keeps. Look at the model, and save it, after this.

        A method with `merging` (`KroneckerFOPNG` by default) or `averaging` also puts the weights where the task ends.

        Args:
            batches: the task's data, an iterable that can be walked more than once.
        """
        check_rewindable(batches)
        self._raise_nonfinite()
        if not self._open and self.tasks_done > 0:
            raise RuntimeError("No task has been begun since the last end_task. Call begin_task before end_task.")
        self._follow_model()
        with torch.no_grad(), undrawn(self._parameters), unrounded(self._parameters):
            check_samples(batches, self.peers)
            self.method.end_task(self._data(batches))
        self.tasks_done += 1
        self._open = False
        self._last = None

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take one step along the gradients that the parameters hold.

        Args:
            closure: computes the loss and its gradients again, as for any torch optimizer.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._check_ready()
        with unrounded(self._parameters):
            self.steps += self._step()
        return loss

    def diagnose(self) -> Diagnosis:
        """Describe the last step of the task at hand: on request, never on the way."""
        self._raise_nonfinite()
        memory = self.method.memory
        directions = 0 if memory is None else memory.count
        error = torch.tensor(nan if memory is None else 0.0) if memory is None or memory.error is None else memory.error
        with torch.no_grad(), unrounded(self._parameters):
            told = no_step if self._last is None else self._last.diagnose
            return told(error, directions, self.method.nbytes)

    def removed_fraction(self) -> Tensor | None:
        """How much of the last step's gradient was taken away; None while there is nothing to take away."""
        self._raise_nonfinite()
        if self._last is None or self._last.remover is None:
            return None
        with torch.no_grad(), unrounded(self._parameters):
            return self._last.removed_fraction()

    @property
    def in_task(self) -> bool:
        """Whether a task has been begun and not ended."""
        return self._open

    # State

    def state_dict(self) -> dict[str, Any]:
        """The whole method: memory, Fishers, anchors, moments, counters, generator. Loads with `weights_only=True`."""
        self._raise_nonfinite()
        state = super().state_dict()
        state["fopng"] = {
            "method": type(self).__name__,
            "variant": self.method.variant,
            "layout": {name: list(shape) for name, shape in self.layout.shapes.items()},
            "state": self.method.state_dict(),
            "tasks_done": self.tasks_done,
            "steps": self.steps,
            "steps_before": self._steps_before,
            "open": self._open,
            "task": self._task,
            "generator": self.generator.get_state(),
            "first_task": None if self._first_at_work is None else self._first_at_work.state_dict(self._names_by_id()),
        }
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take a state over; one of another method or another model is refused, with the difference named."""
        own = state_dict.get("fopng")
        if own is None:
            raise ValueError(f"Expected the state of a {type(self).__name__}, got one of a plain torch optimizer.")
        if own["method"] != type(self).__name__:
            raise ValueError(f"Expected the state of a {type(self).__name__}, got one of a {own['method']}.")
        if own["variant"] != self.method.variant:
            raise ValueError(f"Expected a state with {self.method.variant}, got one with {own['variant']}.")
        layout = ParamLayout({name: torch.Size(shape) for name, shape in own["layout"].items()})
        self._follow_model(frozen=layout.names)
        self.layout.check_extends(layout)
        rates = [group["lr"] for group in state_dict["param_groups"]]
        if len(rates) != len(self.param_groups):
            raise ValueError(f"Expected a state with {len(self.param_groups)} parameter groups, got {len(rates)}.")
        if own["tasks_done"] == 0:
            check_first(self._first, own["first_task"])
            if self._first is not None:
                self._first.load_state_dict(own["first_task"], self._names_by_id())
        for group, saved in zip(self.param_groups, state_dict["param_groups"], strict=True):
            group.update({key: value for key, value in saved.items() if key != "params"})
        self.method.load_state_dict(own["state"], layout, self._blank())
        self.method.move(self._blank(), self._parameters[0])
        self.tasks_done, self.steps = own["tasks_done"], own["steps"]
        self._steps_before = own.get("steps_before", None if own["tasks_done"] else 0)
        self._open, self._task = own["open"], own["task"]
        self.generator.set_state(own["generator"].cpu())
        self._last, self._finite = None, None

    def __getstate__(self) -> dict[str, Any]:
        """Everything, for `copy.deepcopy` and `pickle`; torch's own would forget all but the learning rates."""
        self._raise_nonfinite()
        kept = {name: value for name, value in vars(self).items() if name not in ("source", "_last", "_finite")}
        # no longer of use once its task is done; and torch's own optimizers cannot be read by every kind of pickle
        return {**kept, "_first": self._first_at_work}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "layout" in state:
            self._last, self._finite = None, None
            self._attach()

    # Inside

    @property
    def _first_at_work(self) -> FirstOptimizer | None:
        """The other optimizer, while it is at work."""
        return self._first if self.tasks_done == 0 else None

    def _names_by_id(self) -> dict[int, str]:
        return {id(p): name for name, p in zip(self.layout.names, self._parameters, strict=True)}

    def _list_parameters(self) -> None:
        named = dict(self.model.named_parameters())
        self._parameters = [named[name] for name in self.layout.names]

    def _join(self, peers: Peers) -> None:
        self.peers = self.method.peers = peers
        self.method.memory = None
        # everyone draws for all, and takes what is its own
        peers.agree(self.generator, 0)
        self._attach()

    def _attach(self) -> None:
        self.source = GradientSource(self.model, predict=self.predict, likelihood=self._likelihood, layout=self.layout)
        self.method.attach(self.layout)

    def _follow_model(self, frozen: Collection[str] = ()) -> None:
        """Take in what changed in the model: new parameters are added, changed ones refused.

        Args:
            frozen: parameters that count although they are frozen, as those do that were once trained.
        """
        named = dict(self.model.named_parameters())
        once = {*self.layout.names, *frozen}
        known = {name: p.shape for name, p in named.items() if name in once or p.requires_grad}
        layout = ParamLayout(known)
        refuse_replaced(replaced_parameters(self.layout.names, self._parameters, named))
        layout.check_extends(self.layout)
        held = {id(p) for group in self.param_groups for p in group["params"]}
        new = [p for name, p in named.items() if name in known and id(p) not in held]
        if layout != self.layout:
            if self._open or (self.steps and not self.tasks_done):
                others = () if self._first_at_work is None else self._first_at_work.held
                warn_if_late({name: named[name] for name in known if name not in self.layout.names}, others)
            self.layout = layout
            self._list_parameters()
            self.param_groups[0]["params"].extend(new)
            if self._first_at_work is not None:
                self._first_at_work.add(new)
            self._attach()
        self._kind = None
        self.method.move(self._blank(), self._parameters[0])

    def _data(self, batches: Iterable[Batch]) -> LoaderTask:
        steps = 0 if self._steps_before is None else self.steps - self._steps_before
        return LoaderTask(self.source, batches, self.generator, self._parameters, steps, self.peers, self.tasks_done)

    def _check_ready(self) -> None:
        if not self._open and self.tasks_done > 0:
            raise RuntimeError("The last task has been ended. Call begin_task before the next step.")
        missing = None if self._first_at_work is not None else self.method.missing
        if missing is not None:
            name = type(self).__name__
            raise RuntimeError(f"{name} needs {missing}. Call refresh(loader) before step, once an epoch.")

    def _blank(self) -> Tensor:
        return torch.empty(0, device=self._parameters[0].device, dtype=widen(self._parameters[0].detach()).dtype)

    def _rate(self) -> float | Tensor:
        """The learning rate: one for all, or one a parameter where groups differ."""
        return rate_of(self.param_groups, self._parameters, self._blank(), self.method.scalar_rate, type(self).__name__)

    def _step(self) -> bool:
        """Take a step, and say whether there was a gradient to take it along."""
        grads = held_gradients(self.layout.names, self._parameters)
        if not grads:
            return False
        raw = widen(self.layout.join(grads))
        total = raw.sum()
        finite: Tensor | None = None
        if raw.device.type != "cpu":
            # no waiting for the device here: the step is dropped, and reported at the next chance
            finite = total.isfinite()
            self._finite = finite if self._finite is None else self._finite & finite
        elif not isfinite(total.item()):
            refuse_nonfinite(self.layout, raw)
        if self._first_at_work is None:
            self._step_method(grads.keys(), raw, finite)
            return True
        before = flat_values(self._parameters) if self.method.watches else None
        self._first_at_work.optimizer.step()
        if before is not None:
            self.method.watch(raw, before - flat_values(self._parameters))
        return True

    def _step_method(self, names: Collection[str], raw: Tensor, finite: Tensor | None) -> None:
        method, lr, kind = self.method, self._rate(), (raw.device, raw.dtype, self._parameters[0].dtype)
        if kind != self._kind:
            # the model may have gone elsewhere in the middle of a task
            method.move(raw.new_empty(0), self._parameters[0])
            self._kind = kind
        theta = flat_values(self._parameters) if method.needs_parameters else None
        if theta is not None:
            method.follow(theta)
        held = [(own, dict(own)) for own in method.changing]
        rehearser = ModelRehearser(self.source, self._parameters, self.peers)
        method.rehearse(rehearser)
        names = {*names, *rehearser.reached}
        method.set_active(names)
        g = method.accumulate(method.gradient(raw, theta))
        v = method.update(g, lr=lr, theta=theta)
        if finite is not None:
            v = torch.where(finite, v, 0.0)
            put_back(held, finite)
        self._last = Step(raw, g, v, method.projector, method.remover, method.step_metric())
        subtract(self._parameters, self.layout.split(v), names)

    def _raise_nonfinite(self) -> None:
        if self._finite is not None and not bool(self._finite):
            self._finite = None
            raise FloatingPointError(
                "A gradient since the last refresh held NaN or infinity. Lower the learning rate, clip the gradients, or look at "
                "the loss."
            )
