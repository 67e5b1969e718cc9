"""Vectors as flat tensors `[*lead, p]`, written independently of the library: what dense linear algebra works on."""

from collections.abc import Mapping

import torch

from fopng.core.vector import Vector
from fopng.gradients.layers import DenseGradients, SampleGradients
from fopng.memory.gradients import GradientMemory

Shapes = Mapping[str, torch.Size]


def size(shapes: Shapes) -> int:
    return sum(shape.numel() for shape in shapes.values())


def named(flat: torch.Tensor, shapes: Shapes) -> Vector:
    """The parts of a flat tensor `[*lead, p]`, in the order of the shapes."""
    pieces = flat.split([shape.numel() for shape in shapes.values()], -1)
    parts = {name: p.reshape((*flat.shape[:-1], *shapes[name])) for name, p in zip(shapes, pieces, strict=True)}
    return Vector(parts, flat.dim() - 1)


def flat(vector: Vector, shapes: Shapes) -> torch.Tensor:
    """All parts in one tensor, zeros for what is absent; nothing else may be there."""
    assert set(vector.names) <= set(shapes)
    lead = vector.replicas
    parts = []
    for name, shape in shapes.items():
        part = vector.parts.get(name, vector.like.new_zeros((*lead, *shape)))
        assert part.shape == (*lead, *shape)
        parts.append(part.reshape(*lead, shape.numel()))
    return torch.cat(parts, -1)


def one(flat: torch.Tensor) -> Vector:
    """A flat tensor `[*lead, p]` as the vector of a single parameter, `w`."""
    return Vector({"w": flat}, flat.dim() - 1)


def stored(rows: torch.Tensor) -> GradientMemory:
    """A memory of the gradients `[*lead, m, p]` of that parameter."""
    own = DenseGradients((rows,), rows.dim() - 2)
    return GradientMemory().appended(SampleGradients({("w",): own}, own.count))


def span(shapes: Shapes, names: tuple[str, ...]) -> slice:
    """The part of a flat tensor that parameters which stand side by side fill together."""
    order = list(shapes)
    first = order.index(names[0])
    assert order[first : first + len(names)] == list(names)
    start = size({name: shapes[name] for name in order[:first]})
    return slice(start, start + size({name: shapes[name] for name in names}))
