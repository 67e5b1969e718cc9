"""Second moments of each layer's inputs and of its output gradients: the factors of a Kronecker-factored Fisher.

The gradient of a sample through a Linear or Conv layer is `sum_t d_t a_t^T` over its positions (places of an image, words of a
sequence). `A = E[sum_t a_t a_t^T]` and `G = E[mean_t d_t d_t^T]`, as in KFC (Grosse and Martens, 2016); with one position
`A kron G` is exact where a and d are independent, and always for one sample.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import torch
from torch import Tensor

from fopng.core.tree import map_tree, node, tensors_in
from fopng.core.vector import Vector, broadcast
from fopng.gradients.layers import Names


@node
@final
@dataclass(frozen=True, eq=False)
class LayerMoments:
    """The two moments of one layer.

    Args:
        inputs: `A [*lead, i, i]`; with a bias the last input is a 1.
        signals: `G [*lead, o, o]`.
    """

    inputs: Tensor
    signals: Tensor

    @cached_property
    def bases(self) -> dict[object, Any]:
        """What was worked out from them, such as eigenvectors, for whoever did so: kept as long as the moments are."""
        return {}


@node
@final
@dataclass(frozen=True, eq=False)
class Moments:
    """The moments of every Linear and Conv layer that the data reached, and a diagonal for everything else.

    Args:
        layers: by the names of the layer's parameters: weight, then bias if it has one.
        rest: `E[g^2]` of the parameters outside those layers.
    """

    layers: dict[Names, LayerMoments]
    rest: Vector

    def mean_diagonal(self) -> Tensor:
        """The mean of the Fisher's diagonal over the parameters that the data reached, `[*lead]`; 0 where nothing came back."""
        like = next(tensors_in(self))
        total, count = like.new_zeros(()), like.new_zeros((), dtype=torch.int64)
        for part in self.rest.parts.values():
            flat = part.reshape(*part.shape[: self.rest.lead], -1)
            total, count = total + flat.sum(-1), count + (flat > 0).sum(-1)
        for own in self.layers.values():
            total = total + trace(own.inputs) * trace(own.signals)
            count = count + own.inputs.shape[-1] * own.signals.shape[-1]
        return total / count.clamp(min=1)

    def over(self, unit: Tensor) -> "Moments":
        """The Fisher divided by a number for each replica, `[*lead]`."""
        layers = {
            names: LayerMoments(own.inputs, own.signals / broadcast(unit, own.signals))
            for names, own in self.layers.items()
        }
        return Moments(layers, self.rest / unit)

    def averaged(self, new: "Moments", weight: float) -> "Moments":
        """`(1 - weight) self + weight new`, entry by entry; a layer that only one of them has counts as zero in the other."""
        layers = {
            names: _averaged(self.layers.get(names), new.layers.get(names), weight)
            for names in {**self.layers, **new.layers}
        }
        inside = {name for names in layers for name in names}
        return Moments(layers, self.rest.lerp(new.rest, weight).without(inside))


def _averaged(old: LayerMoments | None, new: LayerMoments | None, weight: float) -> LayerMoments:
    if old is None or new is None:
        own, share = (old, 1 - weight) if new is None else (new, weight)
        assert own is not None
        return map_tree(lambda t: t * broadcast(share, t), own)
    return LayerMoments(mean(old.inputs, new.inputs, weight), mean(old.signals, new.signals, weight))


def mean(old: Tensor, new: Tensor, weight: float) -> Tensor:
    """`(1 - weight) old + weight new`."""
    share = broadcast(weight, new)
    return (1 - share) * old + share * new


def trace(matrix: Tensor) -> Tensor:
    """`[*lead, i, i] -> [*lead]`."""
    return matrix.diagonal(dim1=-2, dim2=-1).sum(-1)


def moment_numbers(shapes: Mapping[str, torch.Size]) -> int:
    """About how many numbers the moments of all layers have: those of each parameter with an input side and an output side."""
    pairs = [(shape[0], shape[1:].numel() + 1) for shape in shapes.values() if len(shape) > 1]
    return sum(o**2 + i**2 for o, i in pairs)
