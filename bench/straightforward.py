"""FOPNG written straightforwardly: every stored gradient as a dense row, the Fisher one sample at a time.

What somebody would write from the paper's algorithm; measured on a few steps, and extrapolated to a whole run.
"""

import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fopng.lab.benchmarks import TaskStream
from fopng.lab.benchmarks.models import MLP


class Straightforward:
    """One run of the paper's algorithm on a stream, as far as its time is concerned.

    Args:
        stream: the tasks.
        every_step: form and invert `A` in every step, as the algorithm is printed; otherwise once an epoch.
    """

    def __init__(self, stream: TaskStream, *, every_step: bool) -> None:
        self.stream, self.every_step = stream, every_step
        self.model = MLP(stream.input_shape, stream.heads, seed=0)
        self.parameters = list(self.model.parameters())
        self.size = sum(p.numel() for p in self.parameters)
        self.fisher_old = torch.rand(self.size) * 1e-3
        self.fisher_new = torch.rand(self.size) * 1e-3
        self.memory = torch.zeros(0, self.size)
        self.inverse = torch.zeros(0, 0)

    def gradient(self, x: Tensor, y: Tensor) -> Tensor:
        """Of the loss on a batch."""
        self.model.zero_grad()
        F.cross_entropy(self.model(x, task=0), y).backward()
        return nn.utils.parameters_to_vector([p.grad for p in self.parameters])

    def fisher_of_one(self, x: Tensor, y: Tensor) -> None:
        """Add one sample to the new task's Fisher."""
        self.fisher_new += self.gradient(x, y).square() * 1e-6

    def invert(self) -> None:
        """`(G^T F_old F_new^-1 F_old G + lambda I)^-1`."""
        scaled = self.memory * self.fisher_old
        gram = (scaled / (self.fisher_new + 1e-3)) @ scaled.T
        self.inverse = torch.linalg.inv(gram + 1e-3 * torch.eye(len(gram)))

    def step(self, x: Tensor, y: Tensor) -> None:
        """Equation 18."""
        g = self.gradient(x, y)
        if self.every_step:
            self.invert()
        scaled = self.memory * self.fisher_old
        projected = g - scaled.T @ (self.inverse @ (scaled @ g))
        natural = projected / (self.fisher_new + 1e-3)
        v = 1e-4 * natural / (projected @ natural).sqrt()
        with torch.no_grad():
            flat = nn.utils.parameters_to_vector(self.parameters) - v
            nn.utils.vector_to_parameters(flat, self.parameters)

    def seconds(self, *, epochs: int, batch: int, stored: int, steps: int, samples: int) -> float:
        """The time of a whole run, from some steps of each task and some samples of each Fisher."""
        total = 0.0
        for number, task in enumerate(self.stream):
            n = len(task.train)
            x, y = task.train.read(torch.arange(batch))
            one = _seconds(lambda x=x, y=y: self.fisher_of_one(x[:1], y[:1]), samples)
            if number == 0:
                total += epochs * n / batch * _seconds(lambda x=x, y=y: self.gradient(x, y), steps)
            else:
                self.invert()
                taken = _seconds(lambda x=x, y=y: self.step(x, y), steps)
                inverted = 0.0 if self.every_step else _seconds(self.invert, 1)
                total += epochs * (n * one + inverted + n / batch * taken)
            total += (n + stored) * one
            rows = torch.stack([self.gradient(x[:1], y[:1]) for _ in range(stored)])
            self.memory = torch.cat([self.memory, rows + 1e-3 * torch.randn_like(rows)])
        return total


def _seconds(work: Callable[[], object], times: int) -> float:
    work()
    start = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - start) / times
