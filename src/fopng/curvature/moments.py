"""Second moments of each weight's inputs and of its output gradients: the factors of a Kronecker-factored Fisher.

The gradient of a sample through a weight is `sum_t d_t a_t^T` over the positions where it is used (places of an image, words of a
sequence). `A = E[sum_t a_t a_t^T]` and `G`, in proportion to `E[sum_t d_t d_t^T]`. With one position `G = E[d d^T]`, and `A kron G`
is exact where a and d are independent. With many, `G` is such that `A kron G` has the trace that the Fisher has there, whatever the
positions share or cancel (docs/explanation/fopng-k.md); convolutions are those of KFC (Grosse and Martens, 2016).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import torch
from torch import Tensor

from fopng.core.tree import map_tree, node, tensors_in
from fopng.core.vector import Vector, broadcast
from fopng.curvature.factors import Factor, added, cut, padded, scaled, size, trace
from fopng.gradients.forms import PLAIN, Form
from fopng.gradients.layers import Names


@node
@final
@dataclass(frozen=True, eq=False)
class LayerMoments:
    """The two moments of one weight.

    Args:
        inputs: `A [*lead, (groups,) i, i]`; with a bias the last input is a 1.
        signals: `G [*lead, (groups,) o, o]`.
        form: how the weight is read as a matrix `[o, i]`.
    """

    inputs: Factor
    signals: Factor
    form: Form = PLAIN

    @cached_property
    def bases(self) -> dict[object, Any]:
        """What was worked out from them, such as eigenvectors, for whoever did so: kept as long as the moments are."""
        return {}

    def traces(self) -> Tensor:
        """The trace of the Fisher in this layer, `[*lead]`."""
        found = trace(self.inputs) * trace(self.signals)
        return found.sum(-1) if self.form.groups > 1 else found

    @property
    def parameters(self) -> int:
        """How many it is about."""
        return size(self.inputs) * size(self.signals) * self.form.groups

    def over(self, unit: Tensor) -> "LayerMoments":
        """The Fisher divided by a number for each replica, `[*lead]`."""
        if isinstance(self.signals, Tensor):
            return replace(self, signals=self.signals / broadcast(unit, self.signals))
        return replace(self, signals=scaled(self.signals, unit.reciprocal()))

    def of_one(self, *, weight: bool) -> "LayerMoments":
        """The Fisher of a layer's weight alone, or of its bias alone."""
        part = slice(0, -1) if weight else slice(-1, None)
        return replace(self, inputs=cut(self.inputs, part))

    def widened(self, inputs: int) -> "LayerMoments":
        """The same with so many inputs: a layer whose bias was frozen then knows nothing about it."""
        return replace(self, inputs=padded(self.inputs, inputs - size(self.inputs)))


@node
@final
@dataclass(frozen=True, eq=False)
class InputMoment:
    """The second moment of a weight's inputs.

    Args:
        moment: `A [*lead, (groups,) i, i]`; with a bias the last input is a 1.
        form: how the weight is read as a matrix `[o, i]`.
    """

    moment: Tensor
    form: Form


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
            total, count = total + own.traces(), count + own.parameters
        return total / count.clamp(min=1)

    def over(self, unit: Tensor) -> "Moments":
        """The Fisher divided by a number for each replica, `[*lead]`."""
        return Moments({names: own.over(unit) for names, own in self.layers.items()}, self.rest / unit)

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
    return LayerMoments(mean(old.inputs, new.inputs, weight), mean(old.signals, new.signals, weight), new.form)


def mean(old: Factor, new: Factor, weight: float | Tensor) -> Any:
    """`(1 - weight) old + weight new`."""
    if isinstance(old, Tensor) and isinstance(new, Tensor):
        share = broadcast(weight, new)
        return (1 - share) * old + share * new
    return added(scaled(old, 1 - weight), scaled(new, weight))


def sum_of(old: LayerMoments, new: LayerMoments) -> LayerMoments:
    """A Kronecker product for the sum of two, with its trace: inputs' moments added up, signals' averaged by the inputs' traces."""
    traces = trace(old.inputs), trace(new.inputs)
    share = traces[1] / (traces[0] + traces[1]).clamp(min=torch.finfo(traces[1].dtype).tiny)
    if isinstance(old.signals, Tensor) and isinstance(new.signals, Tensor):
        signals: Factor = torch.lerp(old.signals, new.signals, share[..., None, None])
    else:
        signals = mean(old.signals, new.signals, share)
    return LayerMoments(added(old.inputs, new.inputs), signals, new.form)


def moment_numbers(shapes: Mapping[str, torch.Size]) -> int:
    """About how many numbers the moments of all layers have: those of each parameter with an input side and an output side."""
    pairs = [(shape[0], shape[1:].numel() + 1) for shape in shapes.values() if len(shape) > 1]
    return sum(o**2 + i**2 for o, i in pairs)
