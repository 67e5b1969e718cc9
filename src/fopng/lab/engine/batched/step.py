"""One training step of R runs, plain or captured in a CUDA graph."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from fopng.core.kernels import kernel, usable
from fopng.core.tree import map_trees
from fopng.core.vector import Vector
from fopng.lab.benchmarks.dropout import further_key
from fopng.lab.engine.batched.data import StackedSamples
from fopng.lab.engine.batched.model import StackedModel
from fopng.lab.engine.batched.replay import StackedRehearser
from fopng.optim.method import Prepared, Running, Taken
from fopng.optim.pipeline import Pipeline

WARM_STEPS = 3
"""Steps taken before a graph is captured, so that libraries are initialised and every state tensor exists."""


@final
class Stepper:
    """Takes the steps of an epoch: gradient, update, new weights, all on the device, without waiting for it.

    Args:
        model: the weights.
        pipeline: the method.
        lr: the learning rate, a number or one for each replica `[R]`.
        alive: which runs go on, `[R]`; a run whose step is not finite stops there, without effect on the others.
        plain: whether plain SGD takes the steps, and the method only watches.

    Attributes:
        taken: the last step.
        loss: of each run at the last step, `[R]`.
    """

    def __init__(
        self, model: StackedModel, pipeline: Pipeline, lr: float | Tensor, alive: Tensor, *, plain: bool = False
    ) -> None:
        self.model, self.pipeline, self.lr, self.alive, self.plain = model, pipeline, lr, alive, plain
        self.taken: Taken | None = None
        self.loss = model.theta[:, 0]
        # where the layers write their gradients, those that can
        self._raw = torch.zeros_like(model.theta) if model.theta.is_cuda or usable(model.theta) else None
        self._places = {} if self._raw is None else model.layout.split(self._raw)
        self._place = torch.zeros((), dtype=torch.int64, device=model.theta.device)
        self._orders: Tensor | None = None
        self._replay: Callable[[], None] | None = None
        # the step that was captured: it holds tensors that the graph reads and that may belong to nobody else
        self._captured: Callable[[], None] | None = None

    def take(self, x: Tensor, y: Tensor, task: int) -> None:
        """One step on a batch, `x [R, b, ...]` and `y [R, b]`."""
        leaves = self.model.leaves()
        keys = self.model.next_keys()
        logits = self.model(leaves, x, task, keys, self._places)
        loss = F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none").unflatten(0, y.shape).mean(-1)
        found = torch.autograd.grad(loss.sum(), list(leaves.values()), allow_unused=True)
        with torch.no_grad():
            # products that vmap makes may lie transposed, and would be copied again and again
            raw = Vector({name: g.contiguous() for name, g in zip(leaves, found, strict=True) if g is not None}, 1)
            # seen by the loss, a number a replica: weights that are not finite give a loss that is not, at the next step
            self.alive.logical_and_(loss.isfinite())
            self.taken = self._taken(raw, keys)
            self._subtract(self.taken.v)
            if not self.plain:
                self._measure()
            # inside a graph these two lie where they lay when it was captured, with the numbers of the last replay
            self.loss = loss.detach()

    def _taken(self, raw: Vector, keys: Tensor | None) -> Taken:
        pipeline, before = self.pipeline, self.pipeline.running
        if self.plain:
            taken = Taken(raw, raw, raw * self.lr, Prepared())
            if pipeline.needs.steps:
                pipeline.watch(raw, taken.v)
        else:
            rehearser = StackedRehearser(self.model, None if keys is None else further_key(keys))
            taken = pipeline.step(raw, lr=self.lr, theta=self.model.weights, rehearser=rehearser)
        pipeline.running = self._kept_in_place(pipeline.running, before)
        return taken

    def _measure(self) -> None:
        """Measure old tasks, where the method is steered by what they lose."""
        pipeline, before = self.pipeline, self.pipeline.running
        if before.steering is not None:
            pipeline.measure(StackedRehearser(self.model, None))
            pipeline.running = self._kept_in_place(pipeline.running, before)

    def _kept_in_place(self, running: Running, before: Running) -> Running:
        """Write what a step changed into the old tensors, where a captured graph reads it.

        A new tensor in the memory of the next gradient is copied.
        """

        def kept(new: Tensor, old: Tensor | None) -> Tensor:
            if old is None:
                shared = self._raw is not None and _shares(new, self._raw)
                return new.clone() if shared else new
            return new if new is old else old.copy_(new)

        return map_trees(kept, running, before)

    def _subtract(self, v: Vector) -> None:
        """`theta -= v` for the runs that go on."""
        theta = self.model.theta
        if usable(theta, v.like):
            move = kernel("steps.move")
            move(theta, v.filled(self.model.layout.shapes).flat(), 1.0, self.alive)
            return
        weights = self.model.weights.parts
        torch._foreach_sub_(list(map(weights.__getitem__, v.parts)), list(v.where(self.alive).parts.values()))

    def walk(
        self,
        samples: StackedSamples,
        orders: Tensor,
        batch: int,
        task: int,
        start: int,
        after: Callable[[int], None],
        capture: bool,
    ) -> None:
        """Take the steps of an epoch from `start` on. A graph of the step serves all epochs of a task until it is forgotten.

        Args:
            samples: the training samples; the same at every call.
            orders: the order of each run's samples, `[R, N]`.
            batch: samples a step.
            task: the number of the task.
            start: the first step to take.
            after: called after every step with its number.
            capture: replay a CUDA graph of the step.
        """
        full, steps = len(samples) // batch, -(-len(samples) // batch)
        offsets = torch.arange(batch, device=orders.device)
        # where the graph looks for them
        places = self._orders = orders if self._orders is None else self._orders.copy_(orders)

        def advance() -> None:
            rows = places.index_select(1, self._place * batch + offsets)
            self.take(*samples.rows(rows), task)
            self._place.add_(1)

        self._place.fill_(start)
        for step in range(start, steps):
            if step >= full:
                self.take(*samples.rows(orders[:, step * batch :]), task)
            elif self._replay is not None:
                self._replay()
            # what is measured and rehearsed changes from step to step
            elif (
                capture
                and self.pipeline.running.steering is None
                and step - start >= WARM_STEPS
                and full - step > WARM_STEPS
            ):
                self._replay, self._captured = self._replayed(advance), advance
                self._replay()
            else:
                advance()
            after(step)

    def forget_graph(self) -> None:
        """Capture the step again, because tensors that it reads were replaced."""
        self._replay = self._captured = None

    def _replayed(self, advance: Callable[[], None]) -> Callable[[], None]:
        """A call that replays the step."""
        graph = captured(advance)
        taken, loss = self.taken, self.loss

        def replay() -> None:
            graph.replay()
            self.taken, self.loss = taken, loss

        return replay


def captured(advance: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """A CUDA graph of the step, on the stream in use."""
    torch.cuda.synchronize()
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    # on the stream of a lane, where there are lanes: what libraries keep for a stream must not be shared between them
    shared = stream == torch.cuda.default_stream()
    with _nothing_collected(), torch.cuda.graph(graph, stream=None if shared else stream):
        advance()
    return graph


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Collect no garbage inside: freeing an earlier graph would end a capture with an error."""
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


def _shares(tensor: Tensor, other: Tensor) -> bool:
    return tensor.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
