"""Small tasks, models for them, and the one loop that every method lives in."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fopng
from flat import flat as flat_vector
from flat import named
from fopng.optim import METHOD_NAMES

METHODS = {name: getattr(fopng, name) for name in METHOD_NAMES}
STEERED = "KroneckerFOPNG, steered"
"""With a tolerance, as it is by default; by its name alone it has a fixed strength here."""
PROJECTED = ("OGD", "ONG", "NaturalOGD", "FOPNG", "FOPNGPreFisher")
FISHER = ("FNG", "ONG", "NaturalOGD", "FOPNG", "FOPNGPreFisher")
ELASTIC = ("EWC", "OnlineEWC")
KRONECKER = ("KroneckerFOPNG", "NCL")
INPUTS = ("GPM", "SGP")
FREE_RATES = tuple(name for name in METHODS if name not in ("OGD", *FISHER, "GEM", "AGEM"))
REHEARSING = ("LwF", "ER", "GEM", "AGEM")


class Heads(nn.Module):
    """A trunk and a head a task; the heads come first in the flat order."""

    def __init__(self, heads: int = 3) -> None:
        super().__init__()
        self.heads = nn.ModuleList([nn.Linear(4, 3) for _ in range(heads)])
        self.trunk = nn.Linear(5, 4)
        self.now = 0

    def forward(self, x: Tensor) -> Tensor:
        head: Tensor = self.heads[self.now](self.trunk(x).tanh())
        return head


@dataclass
class World:
    """A model, and tasks as lists of batches `(x, y)`."""

    model: nn.Module
    loaders: list[list[tuple[Tensor, Tensor]]]
    ask: Callable[..., Any] = field(default=lambda model, batch: (model(batch[0]), batch[1]))

    def enter(self, task: int) -> None:
        if isinstance(self.model, Heads):
            self.model.now = task

    def twin(self) -> "World":
        return World(copy.deepcopy(self.model), self.loaders, self.ask)

    def loss(self, batch) -> Tensor:
        return F.cross_entropy(*self.ask(self.model, batch))

    def whole(self, task: int) -> tuple[Tensor, Tensor]:
        """A task's data in one batch."""
        return tuple(torch.cat(part) for part in zip(*self.loaders[task], strict=True))


def data(tasks: int = 3, *, dtype: torch.dtype = torch.float64) -> list[list[tuple[Tensor, Tensor]]]:
    """Tasks of two batches of four samples."""
    return [
        [(torch.randn(4, 5, dtype=dtype) + task, torch.randint(3, (4,))) for _ in range(2)] for task in range(tasks)
    ]


def single_head(dtype: torch.dtype = torch.float64) -> World:
    return World(nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).to(dtype), data(dtype=dtype))


def multi_head(dtype: torch.dtype = torch.float64) -> World:
    return World(Heads().to(dtype), data(dtype=dtype))


def make(name: str, world: World, lr: float = 0.05, **settings: Any) -> fopng.ContinualOptimizer:
    """A method with a memory of a size for such tasks, however short."""
    if name in PROJECTED:
        settings.setdefault("gradients_per_task", 4)
    if name == "KroneckerFOPNG":
        # what a tolerance makes of it is in test_tolerance
        settings = {"tolerance": None, "rehearse": 0.0, "strength": 30.0, **settings}
    settings.setdefault("predict", world.ask)
    return class_of(name)(world.model, lr, **settings)


def class_of(name: str) -> Any:
    """The optimizer of a name in a test."""
    return METHODS[name.partition(",")[0]]


def live(
    optimizer: fopng.ContinualOptimizer, world: World, tasks: range | None = None, epochs: int = 1
) -> Iterator[tuple[int, int]]:
    """The loop that is the same for all, one step at a time; ends each task."""
    for task in range(len(world.loaders)) if tasks is None else tasks:
        world.enter(task)
        optimizer.begin_task(task)
        for _ in range(epochs):
            optimizer.refresh(world.loaders[task])
            for k, batch in enumerate(world.loaders[task]):
                optimizer.zero_grad()
                world.loss(batch).backward()
                optimizer.step()
                yield task, k
        optimizer.end_task(world.loaders[task])


def run(optimizer: fopng.ContinualOptimizer, world: World, tasks: range | None = None, epochs: int = 1) -> Tensor:
    """Live it through; the parameters in the end."""
    for _ in live(optimizer, world, tasks, epochs):
        pass
    return flat(world.model)


def flat(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def step_of(optimizer: fopng.ContinualOptimizer, g: Tensor, lr: float) -> Tensor:
    """What the method makes of a gradient `[p]`; nothing moves."""
    shapes = optimizer.layout.shapes
    gradient = named(g, shapes)
    return flat_vector(optimizer.pipeline.step(gradient, lr=lr, theta=gradient, rehearser=None).v, shapes)


def kept(optimizer: fopng.ContinualOptimizer) -> dict[str, Tensor]:
    """Every tensor of the method's state, by its path."""
    own = optimizer.state_dict()["fopng"]
    return tensors({part: own[part] for part in ("state", "running")})


def tensors(value: Any, path: str = "") -> dict[str, Tensor]:
    """Every tensor in a nest of dictionaries and lists, by its path."""
    if isinstance(value, Tensor):
        return {path: value}
    if isinstance(value, dict):
        return {k: t for key, inner in value.items() for k, t in tensors(inner, f"{path}/{key}").items()}
    if isinstance(value, (list, tuple)):
        return {k: t for key, inner in enumerate(value) for k, t in tensors(inner, f"{path}/{key}").items()}
    return {}
