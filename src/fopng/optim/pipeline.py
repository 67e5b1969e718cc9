"""A method at work: the one step that optimizers and the batched engine take, and the state that it changes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, final

import torch
from torch import Tensor

from fopng.core.layout import wide_dtype
from fopng.core.tree import bytes_of, map_trees
from fopng.core.vector import Vector
from fopng.curvature.sampling import parameter_like
from fopng.memory.replay_samples import Rehearser
from fopng.optim.method import Method, Prepared, Running, State, Step, Taken
from fopng.optim.task import Task
from fopng.optim.tolerance import Steering


@final
class Pipeline:
    """A method and what it knows.

    Args:
        method: the settings and functions.

    Attributes:
        state: what is kept of old tasks.
        running: what steps change.
    """

    def __init__(self, method: Method[Any, Any]) -> None:
        probed = method.needs_probes
        self.method = method
        self.needs = replace(method.needs, data=True, samples=True) if probed else method.needs
        self.state: State = method.state_type()
        self.running: Running = method.running_type()
        self._prepared = Prepared()
        self._prepared_for: tuple[State | None, tuple[int, int], dict[str, None]] = None, (0, 0), {}
        # what the tasks before had lost when the latest ended
        self._lost: dict[str, Tensor] = {}
        self._steered: tuple[tuple[int, int], Method[Any, Any]] = (0, 0), method
        self._summed = not (isinstance(method.momentum, (int, float)) and method.momentum == 0)

    @property
    def missing(self) -> str | None:
        """What a step needs and `refresh` gives, in words; None when it is there."""
        ready = self._prepared_for[0] is self.state
        return None if ready or not self.method.missing(self.state) else self.needs.refresh

    @property
    def nbytes(self) -> int:
        """Bytes of all that is kept."""
        return bytes_of((self.state, self.running))

    def prepared(self, g: Vector) -> Prepared:
        """What a step at a gradient of these parameters is made with; worked out again when state, strength or they changed."""
        method, (state, turn, names) = self.method_now, self._prepared_for
        if state is not self.state or turn != self._turn or names.keys() != g.parts.keys():
            # the names alone: the gradients are let go
            names = dict.fromkeys(g.parts)
            self._prepared = method.prepare(self.state, names)
            self._prepared_for = self.state, self._turn, names
        return self._prepared

    @property
    def _turn(self) -> tuple[int, int]:
        """How often old tasks were measured, and how many there are: a task begins with a strength of its own."""
        steering = self.running.steering
        return (0, 0) if steering is None else (steering.turn, steering.lost.shape[-1])

    @property
    def method_now(self) -> Method[Any, Any]:
        """The method, with the strength that old tasks need now."""
        steering, method = self.running.steering, self.method
        if steering is None or method.tolerance is None or not method.has_strength:
            return method
        if self._steered[0] != self._turn:
            factor = steering.share_of_old if method.strength_is_weight else steering.factor
            self._steered = self._turn, method.stronger(factor)
        return self._steered[1]

    def step(
        self,
        raw: Vector,
        *,
        lr: "float | Tensor | Vector",
        theta: Vector,
        rehearser: Rehearser | None,
        finite: Tensor | None = None,
    ) -> Taken:
        """Work out a step: `gradient`, `base`, `bend`.

        Args:
            raw: the gradient of the loss, of the parameters that take part.
            lr: eta, a number, one for each replica, or one for each parameter.
            theta: the parameters.
            rehearser: asks the model about samples of the method's own; needed only where `needs.samples`.
            finite: whether the gradient is, `[]`, on a device that is not waited for: if not, the step is zero and changes nothing.
        """
        method, needs, state, running = self.method_now, self.needs, self.state, self.running
        rehearsed, steering, total = None, running.steering, raw
        before = running
        if needs.samples and rehearser is not None:
            rehearsed, running = method.recall(state, running, rehearser)
            total = raw if steering is None else self._with_rehearsal(raw, steering, rehearser)
        step = Step(state, running, self._prepared, lr, theta, rehearsed)
        g = method.gradient(total, step)
        if self._summed:
            g, running = self._accumulated(g, running)
        if needs.moments:
            running = method.observe(running, g)
        step.running, step.prepared = running, self.prepared(g)
        v = method.bend(method.base(g, step), step)
        if method.rated_after(lr):
            v = v * lr
        running = method.watch(running, raw, v) if needs.steps else running
        if finite is not None:
            v, running = v.where(finite), _if_finite(finite, running, before)
        self.running = running
        return Taken(raw, g, v, step.prepared)

    def _with_rehearsal(self, g: Vector, steering: Steering, rehearser: Rehearser) -> Vector:
        """The gradient of the loss and of rehearsing inputs that stand for those of an old task."""
        method, steered = self.method, self.method.tolerance is not None
        if steered and (method.rehearses or method.strength_is_weight):
            g = g * steering.share_of_new
        if not method.rehearses:
            return g
        old = rehearser.gradient(steering.to_rehearse(self.state.probes)) * method.rehearse
        return g + (old * steering.share_of_old if steered else old)

    def _accumulated(self, g: Vector, running: Running) -> tuple[Vector, Running]:
        """Add a gradient to the running sum, `m <- momentum m + g`; parameters that take no part keep theirs."""
        # memory of its own: the gradients' is written again
        old = g.zeros() if running.momentum is None else running.momentum.extended(g)
        total = g + old.only(g.parts) * self.method.momentum
        return total, replace(running, momentum=old.updated(total))

    def measure(self, rehearser: Rehearser) -> None:
        """After a step: measure an old task, if it is time to, and steer by it."""
        steering, tolerance = self.running.steering, self.method.tolerance
        if steering is None:
            return
        steering = replace(steering, steps=steering.steps + 1)
        if tolerance is not None and steering.due:
            found = rehearser.divergence(steering.to_measure(self.state.probes))
            steering = steering.measured(found, tolerance)
        self.running = replace(self.running, steering=steering)

    def measured(self, taken: Taken | None) -> dict[str, Tensor]:
        """Quantities of a step by name: the method's, and what old tasks have lost."""
        found = {} if taken is None else self.method.measure_step(taken)
        steering = self.running.steering
        return found if steering is None or self.method.tolerance is None else {**found, **steering.quantities()}

    def measured_task(self) -> dict[str, Tensor]:
        """Quantities of what is kept when a task has ended."""
        return {**self.method.measure_task(self.state), **self._lost}

    def watch(self, g: Vector, v: Vector) -> None:
        """Show the method a step that another optimizer took."""
        self.running = self.method.watch(self.running, g, v)

    def refresh(self, task: Task) -> None:
        """Learn about the new task."""
        state, self.running = self.method.refresh(self.state, self.running, task)
        self.state = state if state is self.state else replace(state, probes=self.state.probes)

    def end_task(self, task: Task) -> None:
        """Keep what the method needs of a task that is done; when that fails, nothing has changed."""
        lost = self.measured(None)
        state, running = self.method.end_task(self.state, self.running, task)
        if self.method.needs_probes:
            probe = task.prober.probe()
            like = parameter_like(task.source, task.stream.parameters)
            blank = torch.zeros(like.shape[: task.stream.axis], dtype=wide_dtype([like]), device=like.device)
            steering = Steering.new(blank) if self.running.steering is None else self.running.steering
            state = replace(state, probes=(*self.state.probes, probe))
            running = replace(running, steering=steering.another_task())
        self.state, self.running, self._lost = state, running, lost

    def forget_prepared(self) -> None:
        """Work out again what steps are made with."""
        self._prepared_for = None, (0, 0), {}
        self._steered = (0, 0), self.method


@contextmanager
def undone_on_failure(pipeline: Pipeline, generator: torch.Generator | None = None) -> Iterator[None]:
    """Do something wholly or not at all: when it fails, the state is as it was, and the same numbers are drawn again."""
    state, running = pipeline.state, pipeline.running
    drawn = None if generator is None else generator.get_state()
    try:
        yield
    except BaseException:
        pipeline.state, pipeline.running = state, running
        if generator is not None and drawn is not None:
            generator.set_state(drawn)
        raise


def _if_finite(finite: Tensor, running: Running, before: Running) -> Running:
    """What a step has made of the state, or what was before unless the step was finite, `[]`; nobody waits for the device."""

    def chosen(new: Tensor, old: Tensor | None) -> Tensor:
        if new is old or new.device != finite.device:
            return new
        return torch.where(finite, new, torch.zeros_like(new) if old is None else old)

    return map_trees(chosen, running, before)
