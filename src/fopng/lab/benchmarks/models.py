"""The paper's networks, with one head for all tasks or one for each, and a user's own."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from math import prod
from typing import Any, final

import torch
from torch import Tensor, nn

from fopng.lab.benchmarks.dropout import Dropout
from fopng.lab.benchmarks.stream import TaskStream
from fopng.lab.data.named import named_function


class Network(nn.Module, ABC):
    """A body that all tasks share, and output heads on top.

    Args:
        body: from inputs [n, ...] to features [n, features].
        features: how many features the body gives.
        heads: outputs of each head; one head serves every task, several serve one each.
    """

    def __init__(self, body: nn.Sequential, features: int, heads: Sequence[int]) -> None:
        super().__init__()
        if not heads or min(heads) < 1:
            raise ValueError(f"Expected one head or more, each with an output or more, got {tuple(heads)}.")
        self.body = body
        self.heads = nn.ModuleList(nn.Linear(features, outputs) for outputs in heads)

    def forward(self, x: Tensor, task: int | None = None) -> Tensor:
        """Logits [n, outputs] from inputs [n, ...]; with separate heads the task must be given."""
        logits: Tensor = self.heads[self._head(task)](self.body(x))
        return logits

    def differs_in_heads_alone(self) -> bool:
        """Whether tasks are answered alike but for a head's numbers; a class that goes its own way may do anything else."""
        return type(self).forward is Network.forward and all(type(head) is nn.Linear for head in self.heads)

    def head_parameters(self, task: int | None) -> tuple[str, ...]:
        """The names of the parameters that answer this task and not all of them; none where one head serves every task."""
        if len(self.heads) == 1:
            return ()
        head = self._head(task)
        return tuple(f"heads.{head}.{name}" for name, _ in self.heads[head].named_parameters())

    def _head(self, task: int | None) -> int:
        if len(self.heads) == 1:
            return 0
        if task is None:
            raise ValueError(f"Expected a task from 0 to {len(self.heads) - 1}, as each has its own head, got none.")
        if not 0 <= task < len(self.heads):
            raise ValueError(f"Expected a task from 0 to {len(self.heads) - 1}, got {task}.")
        return task


@final
class MLP(Network):
    """Linear layers with ReLU between them: 784-100-100-10, 89,610 parameters, in the paper.

    Args:
        input_shape: shape of one input.
        heads: outputs of each head.
        seed: what the weights are drawn from.
        hidden: units of each hidden layer.
    """

    def __init__(
        self, input_shape: Sequence[int], heads: Sequence[int], *, seed: int, hidden: Sequence[int] = (100, 100)
    ) -> None:
        with drawn_from(seed):
            sizes = [prod(input_shape), *hidden]
            layers: list[nn.Module] = [nn.Flatten()]
            for inputs, outputs in pairwise(sizes):
                layers += [nn.Linear(inputs, outputs), nn.ReLU()]
            super().__init__(nn.Sequential(*layers), sizes[-1], heads)


@final
class ConvNet(Network):
    """Two blocks of two convolutions and a pooling, then two hidden layers with dropout.

    3-32-32-pool-64-64-pool-256-256 with five heads of two has 1,182,762 parameters, as in the paper.

    Args:
        input_shape: shape of one image, (channels, height, width), both sides at least 4.
        heads: outputs of each head.
        seed: what the weights are drawn from.
        dropout: the share of hidden units that is dropped.
    """

    def __init__(self, input_shape: Sequence[int], heads: Sequence[int], *, seed: int, dropout: float = 0.5) -> None:
        if len(input_shape) != 3 or min(input_shape[1:]) < 4:
            shape = tuple(input_shape)
            raise ValueError(f"Expected inputs (channels, height, width) of 4 x 4 pixels or more, got {shape}.")
        channels, height, width = input_shape
        with drawn_from(seed):
            body = nn.Sequential(
                *_block(channels, 32),
                *_block(32, 64),
                nn.Flatten(),
                *_hidden(64 * (height // 4) * (width // 4), 256, Dropout(dropout, place=0)),
                *_hidden(256, 256, Dropout(dropout, place=1)),
            )
            super().__init__(body, 256, heads)


def model_for(stream: TaskStream, *, seed: int, name: str | None = None) -> nn.Module:
    """A network that fits a stream: the paper's choice, `mlp`, `convnet`, or a user's `module:function`.

    The paper takes the MLP for grey images and the ConvNet for coloured ones. A user's function is called with the
    stream and returns a module that takes `model(x, task=...)`; what it draws at random comes from the seed.
    """
    if name is None:
        name = "convnet" if len(stream.input_shape) == 3 and stream.input_shape[0] > 1 else "mlp"
    own = find_model(name)
    if own is None:
        _check_numbers(stream, name)
        return MODELS[name](stream.input_shape, stream.heads, seed)
    with drawn_from(seed):
        model = own(stream)
    if not isinstance(model, nn.Module):
        raise TypeError(f"Expected a torch.nn.Module from {name}, got {type(model).__name__}.")
    return model


def _check_numbers(stream: TaskStream, name: str) -> None:
    with drawn_from(0):  # a dataset may draw its samples
        x, _ = stream[0].train.read(torch.zeros(1, dtype=torch.int64))
    if not x.is_floating_point():
        raise ValueError(
            f"Expected a model of your own for inputs of whole numbers, got {name}. "
            "Give --model module:function, or make the inputs floating-point numbers."
        )


def find_model(name: str) -> Callable[..., Any] | None:
    """The function that a model `module:function` names, None for one of ours; ValueError where there is none."""
    if name in MODELS:
        return None
    if ":" not in name:
        raise ValueError(f"Expected a model out of {', '.join(MODELS)} or module:function, got {name!r}.")
    return named_function(name)


@contextmanager
def drawn_from(seed: int) -> Iterator[None]:
    """Draw what torch draws on the CPU from a seed, and put the global random state back afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


MODELS: dict[str, Callable[[Sequence[int], Sequence[int], int], Network]] = {
    "mlp": lambda input_shape, heads, seed: MLP(input_shape, heads, seed=seed),
    "convnet": lambda input_shape, heads, seed: ConvNet(input_shape, heads, seed=seed),
}


def _block(inputs: int, outputs: int) -> tuple[nn.Module, ...]:
    """Two 3 x 3 convolutions that keep the size, and a pooling that halves it."""
    first, second = nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1)
    return first, nn.ReLU(), second, nn.ReLU(), nn.MaxPool2d(2)


def _hidden(inputs: int, outputs: int, dropout: Dropout) -> tuple[nn.Module, ...]:
    return nn.Linear(inputs, outputs), nn.ReLU(), dropout
