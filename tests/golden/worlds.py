"""Small models and three tasks for each, drawn from generators of their own: nothing here changes with the global one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fopng

TASKS, STEPS, BATCH = 3, 3, 4
Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass
class World:
    """A model, its tasks as lists of batches, and how it is trained on them.

    Args:
        predict: how the model answers a batch; None for fopng's default, `model(x)` on `(x, y)`.
        likelihood: what its outputs mean; None for fopng's default, `Categorical`.
    """

    model: nn.Module
    tasks: list[list[Any]]
    predict: Any = None
    likelihood: fopng.Likelihood | None = None
    loss: Loss = F.cross_entropy

    def loss_of(self, batch: Any) -> Tensor:
        answer = self.predict(self.model, batch) if self.predict else (self.model(batch[0]), batch[1])
        return self.loss(*answer)

    def between_tasks(self, optimizer: fopng.ContinualOptimizer) -> None:
        """Nothing, but for a model that grows."""

    def parameters(self) -> Tensor:
        return torch.cat([p.detach().flatten() for p in self.model.parameters()])


def fill(module: nn.Module, seed: int) -> None:
    """Give every parameter values from a generator of its own, of the size that torch's initialisation has."""
    generator = torch.Generator().manual_seed(seed)
    for p in module.parameters():
        scale = (p[0].numel() if p.dim() > 1 else p.numel()) ** -0.5
        with torch.no_grad():
            p.copy_(scale * torch.randn(p.shape, dtype=torch.float64, generator=generator))


def drawn(shape: tuple[int, ...], classes: int = 3, *, seed: int = 1) -> list[list[tuple[Tensor, Tensor]]]:
    """Three tasks of three batches: inputs around a mean that moves, random labels."""
    generator = torch.Generator().manual_seed(seed)

    def batch(task: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(BATCH, *shape, dtype=torch.float64, generator=generator)
        return x + 0.5 * task, torch.randint(classes, (BATCH,), generator=generator)

    return [[batch(task) for _ in range(STEPS)] for task in range(TASKS)]


def made(model: nn.Module, tasks: list[list[Any]], seed: int = 0, **more: Any) -> World:
    model = model.double()
    fill(model, seed)
    return World(model, tasks, **more)


def mlp() -> World:
    """Three layers, one head."""
    layers = (nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    return made(nn.Sequential(*layers), drawn((6,)))


class TaskHeads(nn.Module):
    """A trunk and a head a task; the heads come first in the flat order."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList([nn.Linear(4, 3) for _ in range(TASKS)])
        self.trunk = nn.Linear(5, 4)

    def forward(self, x: Tensor, task: int) -> Tensor:
        answer: Tensor = self.heads[task](self.trunk(x).tanh())
        return answer


class ByTask(fopng.PredictTask):
    """Batches (x, y, task)."""

    def __call__(self, model, batch):
        return model(batch[0], self.task_of(batch)), batch[1]

    def task_of(self, batch):
        return batch[2]

    def as_task(self, batch, task):
        return (*batch[:2], task)


def heads() -> World:
    """A head a task, chosen by what the batch says."""
    tasks = [[(x, y, task) for x, y in batches] for task, batches in enumerate(drawn((5,)))]
    return made(TaskHeads(), tasks, predict=ByTask())


def conv() -> World:
    """A convolution, a normalisation, a linear layer."""
    layers = (nn.Conv2d(1, 2, 2), nn.Tanh(), nn.Flatten(), nn.LayerNorm(8), nn.Linear(8, 3))
    return made(nn.Sequential(*layers), drawn((1, 3, 3)))


class Words(nn.Module):
    """The mean of words' vectors, normalised and classified."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm, self.head = nn.Embedding(7, 4), nn.LayerNorm(4), nn.Linear(4, 3)
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head(self.scale * self.norm(self.words(x).mean(-2)))
        return answer


def text() -> World:
    """An embedding, a normalisation, and a parameter that belongs to no layer."""
    generator = torch.Generator().manual_seed(2)
    words = [[torch.randint(7, (BATCH, 3), generator=generator) for _ in range(STEPS)] for _ in range(TASKS)]
    labelled = [list(zip(x, (y for _, y in d), strict=True)) for x, d in zip(words, drawn((1,)), strict=True)]
    return made(Words(), labelled)


def regression() -> World:
    """Outputs are the mean of a Gaussian."""
    layers = (nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    tasks = [[(x, x[:, :2].sin()) for x, _ in batches] for batches in drawn((4,))]
    return made(nn.Sequential(*layers), tasks, likelihood=fopng.Gaussian(), loss=F.mse_loss)


def yes_or_no() -> World:
    """Outputs are logits of independent answers."""
    layers = (nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    tasks = [[(x, (x[:, :2] > 0).double()) for x, _ in batches] for batches in drawn((4,))]
    loss = F.binary_cross_entropy_with_logits
    return made(nn.Sequential(*layers), tasks, likelihood=fopng.Bernoulli(), loss=loss)


class EachWord(nn.Module):
    """Predict a word at each place; if tied, the last layer's weight is the words' vectors."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.words, self.mix = nn.Embedding(5, 4), nn.Linear(4, 4, bias=False)
        self.head = None if tied else nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.mix(self.words(x)).tanh()
        answer: Tensor = F.linear(hidden, self.words.weight) if self.head is None else self.head(hidden)
        return answer


def tokens(*, tied: bool = False) -> World:
    """Several answers a sample, one of them without a target."""
    generator = torch.Generator().manual_seed(3)

    def batch() -> tuple[Tensor, Tensor]:
        x, y = torch.randint(5, (2, BATCH, 3), generator=generator)
        y[0, 0] = -100
        return x, y

    tasks = [[batch() for _ in range(STEPS)] for _ in range(TASKS)]
    return made(EachWord(tied), tasks, loss=lambda outputs, y: F.cross_entropy(outputs.mT, y))


def tied() -> World:
    """A weight that two layers use."""
    return tokens(tied=True)


def dropout() -> World:
    """Training draws from torch's own generator."""
    layers = (nn.Linear(6, 5), nn.Tanh(), nn.Dropout(0.3), nn.Linear(5, 3))
    return made(nn.Sequential(*layers), drawn((6,)))


class Growing(World):
    """The last layer gets a row more before each task."""

    def between_tasks(self, optimizer: fopng.ContinualOptimizer) -> None:
        old = self.model[-1]
        new = nn.Linear(old.in_features, old.out_features + 1).double()
        fill(new, old.out_features)
        with torch.no_grad():
            new.weight[:-1], new.bias[:-1] = old.weight, old.bias
        self.model[-1] = new
        optimizer.adopt_parameters()


def growing() -> World:
    """A classifier of two classes, then three, then four."""
    layers = (nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    tasks = [[(x, y % (2 + task)) for x, y in batches] for task, batches in enumerate(drawn((4,), 4))]
    world = made(nn.Sequential(*layers), tasks)
    return Growing(world.model, world.tasks)


WORLDS = {
    each.__name__: each for each in (mlp, heads, conv, text, tokens, tied, dropout, regression, yes_or_no, growing)
}
