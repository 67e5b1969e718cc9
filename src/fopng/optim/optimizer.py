"""The drop-in optimizer: a method driven by anyone's model and training loop."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from fopng.core.batch import Batch, Predict, predict_pairs
from fopng.core.layout import ParamLayout
from fopng.core.likelihood import Likelihood
from fopng.core.vector import Vector
from fopng.curvature.sampling import LoaderStream, check_rewindable
from fopng.gradients.per_sample import PerSampleGradients
from fopng.memory.probe import ProbeKind
from fopng.memory.replay_draws import BatchSamples
from fopng.optim.arguments import check_answers, check_arguments, check_samples, plain_task, warn_if_late
from fopng.optim.diagnostics import Diagnosis, diagnosis_of
from fopng.optim.first_task import FirstOptimizer, FirstTask, check_first
from fopng.optim.groups import Groups, check_group, make_groups, of_model, rate_of
from fopng.optim.method import Method, Running, State, Taken
from fopng.optim.parameters import Parameters, check_finite
from fopng.optim.pipeline import Pipeline, undone_on_failure
from fopng.optim.placement import moved, shared
from fopng.optim.replay_base import ModelRehearser
from fopng.optim.resize import put_in_place, refuse_replaced, replaced_parameters, resize_state
from fopng.optim.saving import read, saved
from fopng.optim.task import Task
from fopng.optim.tolerance import warn_if_exceeded
from fopng.optim.undisturbed import no_autocast, preserve_rng
from fopng.parallel.collectives import Communicator, communicator_of, group_communicator, warn_if_not_shared


class ContinualOptimizer(torch.optim.Optimizer):
    """A `torch.optim.Optimizer` that knows about tasks.

    `begin_task`, then for every epoch `refresh` and the usual steps, then `end_task`; the same for every method.

    Args:
        model: the model to train; its trainable parameters are optimized. Inside a `DistributedDataParallel`, the processes of
            that share the run, each with a shard of the data (docs/guides/several-processes.md).
        lr: the learning rate.
        method: the mathematics.
        first_task: what trains the first task.
        predict: how the model answers a batch.
        likelihood: what its outputs mean.
        groups: parameters with a learning rate of their own.
        probe: what stands for the inputs of old tasks.
        generator: draws samples and labels; by default one seeded like torch's own.
    """

    def __init__(
        self,
        model: nn.Module,
        lr: float,
        method: Method[Any, Any],
        first_task: FirstTask = None,
        predict: Predict | None = None,
        likelihood: Likelihood | None = None,
        groups: Groups | None = None,
        probe: ProbeKind = None,
        generator: torch.Generator | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"Expected a torch.nn.Module, got a {type(model).__name__}. Pass the model itself.")
        check_arguments(lr, predict, likelihood, probe, generator)
        self.model, communicator = communicator_of(model)
        self.method, self.probe = method, probe
        self.pipeline = Pipeline(method)
        self._trained = Parameters(self.model, ParamLayout.of(self.model))
        self.predict = predict_pairs if predict is None else predict
        self._likelihood = likelihood
        # seeded like the global generator, without drawing from it
        self.generator = torch.Generator().manual_seed(torch.initial_seed()) if generator is None else generator
        self.tasks_done, self.steps = 0, 0
        self._open = False
        self._task: int | str | None = None
        self._finite: Tensor | None = None
        self._last: Taken | None = None
        self._checked = False
        super().__init__(make_groups(groups, list(self._trained.named.values())), {"lr": lr})
        rate_of(self.param_groups, self._trained.named, self.pipeline.needs.one_rate, type(self).__name__)
        self._join(communicator)
        own_start = not self.pipeline.needs.plain_start
        self._first = FirstOptimizer.choose(first_task, self.param_groups, own_start, self.model)

    def share(self, group: ProcessGroup | None = None) -> None:
        """Share the run with other processes, each of which calls this; done already for a `DistributedDataParallel` model.

        For a model that is wrapped later (by a framework), or whose gradients are averaged by hand.

        Args:
            group: of `torch.distributed`; None for all processes.
        """
        if self.steps or self.tasks_done or self._open:
            raise RuntimeError("A run is shared before the first task. Call share() right after the optimizer is made.")
        self._join(group_communicator(group, self._trained.some.device))

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
        warn_if_not_shared(self.communicator, stacklevel=2)
        self._follow_model()
        self._open, self._task = True, task
        # a stale gradient would make another task's head take part in this one
        self.zero_grad()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Give parameters of the model settings of their own, such as a learning rate."""
        check_group(param_group, type(self).__name__)
        super().add_param_group({**param_group, "params": of_model(param_group["params"], self.model)})

    def adopt_parameters(self) -> None:
        """Go on with parameters that were replaced, by ones of the same shape or with more rows (a classifier that grows).

        Between two tasks. The first rows are the old ones, of which all that is known stays; about new ones it is zero.
        """
        self._raise_nonfinite()
        named = dict(self.model.named_parameters())
        replaced = replaced_parameters(self._trained.named, named)
        if not replaced:
            return
        if self._open:
            raise RuntimeError(f"Task {self._task!r} has not been ended. Call end_task before adopt_parameters.")
        layout = ParamLayout({name: named[name].shape for name in self.layout.names if name in named})
        resize_state(self.pipeline, self.layout, layout)
        for optimizer in (self, *([] if self._first is None else [self._first.optimizer])):
            put_in_place(optimizer, replaced)
        self._trained = Parameters(self.model, layout)
        self._attach()

    def refresh(self, batches: Iterable[Batch]) -> None:
        """Estimate what the method needs of the new task, once an epoch; nothing while another optimizer trains it.

        The first call also checks that `predict` and `likelihood` fit the data, for every method.

        Args:
            batches: the task's data, an iterable that can be walked more than once.
        """
        check_rewindable(batches)
        self._raise_nonfinite()
        self._follow_model()
        with torch.no_grad(), preserve_rng(self._trained.named.values()), no_autocast(self._trained.some):
            if not self._checked and (self.pipeline.needs.data or self.pipeline.needs.refresh):
                check_answers(self.source, batches)
                if self.method.needs_probes:
                    # a look at the data draws nothing: a run that goes on does not look again
                    state = self.generator.get_state()
                    self._data(batches).prober.check()
                    self.generator.set_state(state)
                self._checked = True
            if self._first_at_work is None:
                with undone_on_failure(self.pipeline, self.generator):
                    self.pipeline.refresh(self._data(batches))

    def end_task(self, batches: Iterable[Batch]) -> None:
        """End a task: store gradients, consolidate Fishers, whatever the method keeps.

        Args:
            batches: the task's data, an iterable that can be walked more than once.
        """
        check_rewindable(batches)
        self._raise_nonfinite()
        if not self._open and self.tasks_done > 0:
            raise RuntimeError("No task has been begun since the last end_task. Call begin_task before end_task.")
        self._follow_model()
        with torch.no_grad(), preserve_rng(self._trained.named.values()), no_autocast(self._trained.some):
            check_samples(batches, self.communicator)
            before = self.pipeline.running.steering
            with undone_on_failure(self.pipeline, self.generator):
                self.pipeline.end_task(self._data(batches))
        self.tasks_done += 1
        self._open = False
        self._last = None
        # a warning may be an error
        warn_if_exceeded(before, self.method.tolerance)

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
        if not self._open and self.tasks_done > 0:
            raise RuntimeError("The last task has been ended. Call begin_task before the next step.")
        with no_autocast(self._trained.some):
            self.steps += self._step()
        return loss

    def diagnose(self) -> Diagnosis:
        """Describe the last step of the task at hand: on request, never on the way."""
        last = self._last_step()
        with torch.no_grad(), no_autocast(self._trained.some):
            found = diagnosis_of(last, self.pipeline.state.memory, self.pipeline.nbytes)
            return replace(found, coverage=self.method.coverage(self.pipeline.state))

    def measure_step(self) -> dict[str, Tensor]:
        """What the method measures of the last step, by name; nothing while another optimizer takes the steps."""
        last = self._last_step()
        with torch.no_grad(), no_autocast(self._trained.some):
            return self.pipeline.measured(last)

    def removed_fraction(self) -> Tensor | None:
        """How much of the last step's gradient was taken away; None while there is nothing to take away."""
        return self.measure_step().get("removed_fraction")

    def _last_step(self) -> Taken | None:
        self._raise_nonfinite()
        if self._last is not None and self._last.raw.version != self._version:
            raise RuntimeError(
                "The gradients of the last step have been written over. Ask right after step, or use zero_grad(set_to_none=True)."
            )
        return self._last

    @property
    def layout(self) -> ParamLayout:
        """The parameters that are trained: names and shapes."""
        return self._trained.layout

    @property
    def in_task(self) -> bool:
        """Whether a task has been begun and not ended."""
        return self._open

    # State

    def state_dict(self) -> dict[str, Any]:
        """The whole method: memory, Fishers, anchors, moments, counters, generator. Loads with `weights_only=True`."""
        self._raise_nonfinite()
        return {**super().state_dict(), "fopng": saved(self)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take a state over; one of another method or another model is refused, with the difference named."""
        found = read(self, state_dict)
        self._layout_of_model(frozen=found.layout.names).check_extends(found.layout)
        if len(found.groups) != len(self.param_groups):
            raise ValueError(
                f"Expected a state with {len(self.param_groups)} parameter groups, got {len(found.groups)}."
            )
        device = self._trained.some.device
        state = shared(found.state, self.communicator, device)
        if found.counters["tasks_done"] == 0:
            check_first(self._first, found.first_task)
        # from here on nothing is refused, but by the optimizer of the first task, which changes before this one does
        self._follow_model(frozen=found.layout.names)
        if found.counters["tasks_done"] == 0 and self._first is not None:
            self._first.load_state_dict(found.first_task or {}, self._trained.names_by_id())
        for group, saved_group in zip(self.param_groups, found.groups, strict=True):
            group.update(saved_group)
        self._put_state(state, found.running, torch.empty(0, dtype=found.kind.dtype, device=device))
        self.pipeline.forget_prepared()
        self.tasks_done, self.steps = found.counters["tasks_done"], found.counters["steps"]
        self._open, self._task = found.is_open, found.task
        self.generator.set_state(found.generator)
        self._last, self._finite = None, None

    def __getstate__(self) -> dict[str, Any]:
        """Everything, for `copy.deepcopy` and `pickle`; torch's own would forget all but the learning rates."""
        self._raise_nonfinite()
        kept = {name: value for name, value in vars(self).items() if name not in ("source", "_last", "_finite")}
        # no longer of use once its task is done; and torch's own optimizers cannot be read by every kind of pickle
        return {**kept, "_first": self._first_at_work}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "pipeline" in state:
            self._last, self._finite = None, None
            self.pipeline.forget_prepared()
            self._attach()

    # Inside

    @property
    def _first_at_work(self) -> FirstOptimizer | None:
        """The other optimizer, while it is at work."""
        return self._first if self.tasks_done == 0 else None

    def _join(self, communicator: Communicator) -> None:
        self.communicator = communicator
        # everyone draws for all, and takes what is its own
        communicator.agree(self.generator, 0)
        self._attach()

    def _attach(self) -> None:
        self.source = PerSampleGradients(
            self.model, predict=self.predict, likelihood=self._likelihood, layout=self.layout
        )

    def _layout_of_model(self, frozen: Collection[str] = ()) -> ParamLayout:
        """The parameters that the model trains now, those that were once trained, and some that are frozen."""
        once = {*self.layout.names, *frozen}
        named = self.model.named_parameters()
        return ParamLayout({name: p.shape for name, p in named if name in once or p.requires_grad})

    def _follow_model(self, frozen: Collection[str] = ()) -> None:
        """Take in what changed in the model: new parameters are added, changed ones refused.

        Args:
            frozen: parameters that count although they are frozen, as those do that were once trained.
        """
        named, layout = dict(self.model.named_parameters()), self._layout_of_model(frozen)
        refuse_replaced(replaced_parameters(self._trained.named, named))
        layout.check_extends(self.layout)
        held = {id(p) for group in self.param_groups for p in group["params"]}
        new = [p for name, p in named.items() if name in layout.names and id(p) not in held]
        if layout != self.layout:
            if self._open or (self.steps and not self.tasks_done):
                others = () if self._first_at_work is None else self._first_at_work.held
                warn_if_late({name: named[name] for name in layout.names if name not in self.layout.names}, others)
            self._trained = Parameters(self.model, layout)
            self.param_groups[0]["params"].extend(new)
            if self._first_at_work is not None:
                self._first_at_work.add(new)
            self._attach()
        self._move_state()

    def _data(self, batches: Iterable[Batch]) -> Task:
        stream = LoaderStream(batches, self.generator, self.communicator)
        return Task(self.source, stream, BatchSamples(self.source, stream), self._trained.named, self.probe)

    def _move_state(self) -> None:
        """Bring the state to where the model is, and to its precision, if it is not there."""
        own = self._trained
        if own.place != (own.some.device, own.some.dtype):
            before = own.blank_before
            own.note_place()
            self._put_state(self.pipeline.state, self.pipeline.running, before)

    def _put_state(self, state: State, running: Running, before: Tensor) -> None:
        tree = state, running
        self.pipeline.state, self.pipeline.running = moved(tree, self._trained.blank, before, self._trained.some)

    def _step(self) -> bool:
        """Take a step, and say whether there was a gradient to take it along."""
        own, pipeline, first = self._trained, self.pipeline, self._first_at_work
        if first is None and (missing := pipeline.missing) is not None:
            raise RuntimeError(
                f"{type(self).__name__} needs {missing}. Call refresh(loader) before step, once an epoch."
            )
        if own.place != (own.some.device, own.some.dtype):
            self._move_state()
        raw = own.gradients()
        if not raw.parts:
            return False
        finite = check_finite(raw)
        if finite is not None:
            # the step is dropped, and reported at the next chance
            self._finite = finite if self._finite is None else self._finite & finite
        if first is not None:
            self._step_first(raw, first)
            return True
        rehearser = ModelRehearser(self.source, own.named, self.communicator)
        lr = rate_of(self.param_groups, own.named, pipeline.needs.one_rate, type(self).__name__)
        with undone_on_failure(pipeline):
            taken = pipeline.step(raw, lr=lr, theta=own.values(), rehearser=rehearser, finite=finite)
            version = raw.version
            own.subtract(taken.v)
        self._last, self._version = taken, version
        pipeline.measure(rehearser)
        return True

    def _step_first(self, raw: Vector, first: FirstOptimizer) -> None:
        """Let the other optimizer take a step; show it to a method that watches."""
        watched = self.pipeline.needs.steps
        before = self._trained.values().clone() if watched else raw
        first.follow_schedule(self.param_groups)
        first.optimizer.step()
        if watched:
            self.pipeline.watch(raw, before - self._trained.values())

    def _raise_nonfinite(self) -> None:
        if self._finite is not None and not bool(self._finite):
            self._finite = None
            raise FloatingPointError("A gradient since the last refresh held NaN or infinity. Lower the learning rate.")
