"""One training step of R runs, plain or captured in a CUDA graph."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from fopng.core.kernels import kernel, usable
from fopng.lab.benchmarks.dropout import further_key
from fopng.lab.engine.batched.samples import StackedSamples
from fopng.lab.engine.batched.sampling import StackedRehearser
from fopng.lab.engine.batched.stacking import StackedModel
from fopng.optim.method import Method

WARM_STEPS = 3
"""Steps taken before a graph is captured, so that libraries have set themselves up and every state vector exists."""


@final
class Stepper:
    """Takes the steps of an epoch: gradient, update, new weights, all on the device, nothing waited for.

    Args:
        model: the weights.
        method: the mathematics; None while plain SGD learns the first task.
        lr: the learning rate, a number or one a replica `[R, 1]`.
        alive: which runs go on, `[R]`; a run whose step is not finite stops there, and the others do not notice.
        watcher: a method that watches the steps of plain SGD.
    """

    def __init__(
        self,
        model: StackedModel,
        method: Method | None,
        lr: float | Tensor,
        alive: Tensor,
        watcher: Method | None = None,
    ) -> None:
        self.model, self.method, self.lr, self.alive, self.watcher = model, method, lr, alive, watcher
        self.g, self.loss = model.theta, model.theta[:, 0]
        self._raw = torch.zeros_like(model.theta)
        self._places = model.layout.split(self._raw)
        self._written = set[str]()
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
            named = {name: gradient for name, gradient in zip(leaves, found, strict=True) if gradient is not None}
            # seen by the loss, a number a replica: weights that are not finite give a loss that is not, at the next step
            self.alive.logical_and_(loss.isfinite())
            self._move(self._joined(named), named, keys)
            # inside a graph these two lie where they lay when it was captured, with the numbers of the last replay
            self.loss = loss.detach()

    def _joined(self, named: dict[str, Tensor]) -> Tensor:
        """The gradient `[R, p]`, in the same memory at every step; layers that could have written theirs into it already."""
        for name, place in self._places.items():
            found = named.get(name)
            if found is None:
                if name in self._written:
                    place.zero_()
            elif found.data_ptr() != place.data_ptr() or found.stride() != place.stride():
                place.copy_(found)
        self._written.update(named)
        return self._raw

    def _move(self, g: Tensor, named: dict[str, Tensor], keys: Tensor | None) -> None:
        changing = self.method or self.watcher
        held = [] if changing is None else [(own, dict(own)) for own in changing.changing]
        if self.method is None:
            v, factor = g, self.lr
            if self.watcher is not None:
                self.watcher.watch(g, self.lr * g)
        else:
            theta = self.model.theta if self.method.needs_parameters else None
            if theta is not None:
                self.method.follow(theta)
            rehearser = StackedRehearser(self.model, None if keys is None else further_key(keys))
            self.method.rehearse(rehearser)
            self.method.set_active({*named, *rehearser.reached})
            g = self.method.accumulate(self.method.gradient(g, theta))
            v, factor = self.method.update(g, lr=self.lr, theta=theta), 1.0
        for own, before in held:
            _keep_in_place(own, before, self._raw)
        self._subtract(v, factor)
        self.g = g

    def _subtract(self, v: Tensor, factor: float | Tensor) -> None:
        """`theta -= factor v` for the runs that go on, `factor` a number or one a replica `[R, 1]`."""
        theta = self.model.theta
        if v.is_contiguous() and usable(theta, v):
            move = kernel("steps.move")
            move(theta, v, factor, self.alive)
        else:
            theta.sub_(torch.where(self.alive.unsqueeze(-1), factor * v, 0.0))

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
            elif capture and step - start >= WARM_STEPS and full - step > WARM_STEPS:
                self._replay, self._captured = self._replayed(advance), advance
                self._replay()
            else:
                advance()
            after(step)

    def forget_graph(self) -> None:
        """Capture the step again: tensors that it reads are others now."""
        self._replay = self._captured = None

    def _replayed(self, advance: Callable[[], None]) -> Callable[[], None]:
        """A call that replays the step."""
        graph = captured(advance)
        g, loss = self.g, self.loss

        def replay() -> None:
            graph.replay()
            self.g, self.loss = g, loss

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
    """No garbage is collected inside: an earlier graph among it gives its memory back, which ends a capture with an error."""
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


def _keep_in_place(state: dict[str, Tensor], before: dict[str, Tensor], raw: Tensor) -> None:
    """Write what changed of a method's state where it was, so that a graph finds it there again.

    What is new and lies in `raw`, which every step writes anew, gets memory of its own.
    """
    for name, value in state.items():
        if name not in before:
            state[name] = value.clone() if value.data_ptr() == raw.data_ptr() else value
        elif value is not before[name]:
            state[name] = before[name].copy_(value)
