"""Second moments of what layers are given and of what comes back to them: the two factors of a Kronecker-factored Fisher.

The gradient of a sample through a Linear or Conv layer is `sum_t d_t a_t^T` over its positions (places of an image, words of a
sequence). `A = E[sum_t a_t a_t^T]` and `G = E[mean_t d_t d_t^T]`, as in KFC (Grosse and Martens, 2016); with one position
`A kron G` is exact where a and d are independent, and always for one sample.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from fopng.core.batch import Batch, NotFinite, sample_count
from fopng.core.layout import ParamLayout
from fopng.core.likelihood import Generators, Labels, Signals, draws_labels
from fopng.curvature.estimate import chunks, flat_zeros
from fopng.gradients.backward import Names
from fopng.gradients.layers import LayerGradients, LinearGradients
from fopng.gradients.per_sample import GradientSource
from fopng.parallel.collectives import ALONE, Peers
from fopng.parallel.sharded_sampling import Deal


@final
@dataclass(frozen=True)
class LayerMoments:
    """The two moments of one layer.

    Args:
        inputs: `A [..., i, i]`; with a bias the last input is a 1.
        signals: `G [..., o, o]`.
    """

    inputs: Tensor
    signals: Tensor


@final
@dataclass(frozen=True)
class Moments:
    """The moments of every Linear and Conv layer that the data reached, and a diagonal for everything else.

    Args:
        layers: by the names of the layer's parameters: weight, then bias if it has one.
        rest: `E[g^2]` of the parameters outside those layers, zero elsewhere, `[..., p]`.
    """

    layers: Mapping[Names, LayerMoments]
    rest: Tensor

    def finite(self) -> Tensor:
        """Whether all numbers of a replica are finite, `[...]`."""
        held = [self.rest, *(t.flatten(-2) for m in self.layers.values() for t in (m.inputs, m.signals))]
        return torch.stack([tensor.isfinite().all(-1) for tensor in held]).all(0)

    def cleared(self, kept: Tensor) -> "Moments":
        """Zero in the replicas that are not kept, `[...]`, whatever they hold."""
        layers = {
            names: LayerMoments(clear(own.inputs, kept), clear(own.signals, kept)) for names, own in self.layers.items()
        }
        return Moments(layers, torch.where(kept.unsqueeze(-1), self.rest, 0.0))

    def mean_diagonal(self) -> Tensor:
        """The mean of the Fisher's diagonal over the parameters that the data reached, `[...]`; 0 where nothing came back."""
        total, count = self.rest.sum(-1), (self.rest > 0).sum(-1)
        for own in self.layers.values():
            total = total + trace(own.inputs) * trace(own.signals)
            count = count + own.inputs.shape[-1] * own.signals.shape[-1]
        return total / count.clamp(min=1)

    def over(self, unit: Tensor) -> "Moments":
        """The Fisher divided by a number for each replica, `[...]`."""
        layers = {
            names: LayerMoments(own.inputs, own.signals / unit[..., None, None]) for names, own in self.layers.items()
        }
        return Moments(layers, self.rest / unit.unsqueeze(-1))


def matrix_key(kind: str, names: Names = ()) -> str:
    """What a method keeps a matrix under: what it is, and the parameters of the layer that it is about."""
    return json.dumps([kind, *names])


def trace(matrix: Tensor) -> Tensor:
    """`[..., i, i] -> [...]`."""
    return matrix.diagonal(dim1=-2, dim2=-1).sum(-1)


def moment_numbers(layout: ParamLayout) -> int:
    """About how many numbers the moments of all layers have: those of each parameter with an input side and an output side."""
    pairs = [(shape[0], shape[1:].numel() + 1) for shape in layout.shapes.values() if len(shape) > 1]
    return sum(o**2 + i**2 for o, i in pairs)


def clear(matrix: Tensor, kept: Tensor) -> Tensor:
    """Zero the matrices `[..., i, j]` of the replicas that are not kept, `[...]`."""
    return torch.where(kept[..., None, None], matrix, 0.0)


def with_one(a: Tensor) -> Tensor:
    """Append the 1 that a bias is multiplied with: `[..., i] -> [..., i + 1]`."""
    return torch.cat([a, a.new_ones(()).expand(*a.shape[:-1], 1)], -1)


@final
class InputSums:
    """`A` of every Linear and Conv layer, added up batch by batch; nothing is sent back.

    Args:
        source: the model.
        parameters: `[*lead, p]` instead of the model's own, for replicas; the batches then are `[*lead, n, ...]`.
        peers: the processes that add up batches of their own.
    """

    def __init__(self, source: GradientSource, parameters: Tensor | None = None, peers: Peers = ALONE) -> None:
        self._source, self._parameters, self._peers = source, parameters, peers
        self._sums: dict[Names, Tensor] = {}
        self._count = 0

    def add(self, batch: Batch) -> None:
        """Add the samples of a batch."""
        for names, a, bias in self._source.inputs(batch, parameters=self._parameters):
            _add(self._sums, names, _input_square(a, bias))
        self._count += sample_count(batch, _axes(self._parameters))

    def mean(self) -> dict[Names, Tensor]:
        """`A [..., i, i]` of every layer that was reached; with a bias the last input is a 1."""
        sums, count = self._peers.sum_named(self._sums), self._peers.total(self._count)
        _require_samples(count)
        return _divided(sums, count)


@final
class MomentSums:
    """Both moments of every Linear and Conv layer, and squares for everything else, added up batch by batch.

    Args:
        source: the model.
        signals: what is sent back from the outputs.
        parameters: `[*lead, p]` instead of the model's own, for replicas; the batches then are `[*lead, n, ...]`.
        generator: draws noise and labels; one for all, or one for each replica.
        peers: the processes that add up batches of their own.
    """

    def __init__(
        self,
        source: GradientSource,
        signals: Signals | Labels,
        *,
        parameters: Tensor | None = None,
        generator: Generators = None,
        peers: Peers = ALONE,
    ) -> None:
        self._source, self._signals, self._peers = source, signals, peers
        self._parameters, self._generator = parameters, generator
        self._inputs: dict[Names, Tensor] = {}
        self._backs: dict[Names, Tensor] = {}
        self._squares: dict[Names, Tensor] = {}
        self._count = 0

    def add(self, batch: Batch) -> None:
        """Add the samples of a batch."""
        self._source.show_factors(
            batch, self._signals, self._see, parameters=self._parameters, generator=self._generator
        )
        self._count += sample_count(batch, _axes(self._parameters))

    def _see(self, number: int, names: Names, layer: LayerGradients) -> None:
        if not isinstance(layer, LinearGradients):
            _add(self._squares, names, layer.sum_squares())
            return
        if number == 0:
            # the inputs are the same whatever is sent back
            _add(self._inputs, names, _input_square(layer.a, layer.bias))
        d = layer.d.flatten(-3, -2)
        _add(self._backs, names, d.mT @ d / layer.positions)

    def mean(self) -> Moments:
        """The moments of what was added."""
        count = self._peers.total(self._count)
        _require_samples(count)
        kinds = (self._inputs, self._backs, self._squares)
        inputs, backs, squares = (_divided(self._peers.sum_named(sums), count) for sums in kinds)
        rest = flat_zeros(self._source, self._parameters)
        for names, own in squares.items():
            rest[..., self._source.layout.span(names)] = own
        return Moments({names: LayerMoments(a, backs[names]) for names, a in inputs.items()}, rest)


def layer_moments(
    source: GradientSource,
    batches: Iterable[Batch],
    *,
    signals: Signals | Labels = "normal",
    samples: int | None = None,
    generator: torch.Generator | None = None,
    memory_limit: int | None = None,
    peers: Peers = ALONE,
) -> Moments:
    """The second moments of every layer of a model on data.

    Args:
        source: the model.
        batches: the data; walked more than once.
        signals: what is sent back from the outputs: noise of variance one, or the score of the data's labels, of labels drawn
            from the model, or of all labels, weighted exactly.
        samples: how many samples to use, drawn without replacement; None for all.
        generator: draws the samples, noise and labels.
        memory_limit: bytes to hold at a time; None for `fisher.held_at_most`.
        peers: the processes that have a shard of the data each.

    >>> source = GradientSource(torch.nn.Linear(3, 2))
    >>> moments = layer_moments(source, [(torch.ones(4, 3), torch.tensor([0, 1, 1, 0]))])
    >>> [(names, own.inputs.shape, own.signals.shape) for names, own in moments.layers.items()]
    [(('weight', 'bias'), torch.Size([4, 4]), torch.Size([2, 2]))]
    """
    deal = Deal(generator, peers, labels=draws_labels(signals))
    sums = MomentSums(source, signals, generator=deal, peers=peers)
    for chunk in chunks(source, batches, samples, deal, None, memory_limit):
        sums.add(chunk)
    moments = sums.mean()
    if not bool(moments.finite()):
        raise NotFinite(
            f"Expected finite moments, got NaN or infinity in {_nonfinite(moments, source.layout)}. Has the training diverged?"
        )
    return moments


def input_moments(
    source: GradientSource,
    batches: Iterable[Batch],
    *,
    samples: int | None = None,
    generator: torch.Generator | None = None,
    memory_limit: int | None = None,
    peers: Peers = ALONE,
) -> dict[Names, Tensor]:
    """`A = E[sum_t a_t a_t^T]` of every Linear and Conv layer of a model on data; arguments as `layer_moments`."""
    sums = InputSums(source, peers=peers)
    for chunk in chunks(source, batches, samples, Deal(generator, peers, labels=False), None, memory_limit):
        sums.add(chunk)
    means = sums.mean()
    broken = [name for names, mean in means.items() if not bool(mean.isfinite().all()) for name in names]
    if broken:
        raise NotFinite(f"Expected finite inputs, got NaN or infinity at {broken}. Has the training diverged?")
    return means


def _require_samples(found: int) -> None:
    if not found:
        raise ValueError("Expected at least one sample to take moments of, got none.")


def _nonfinite(moments: Moments, layout: ParamLayout) -> list[str]:
    wrong = [
        name
        for names, own in moments.layers.items()
        if not bool(own.inputs.isfinite().all() & own.signals.isfinite().all())
        for name in names
    ]
    return wrong + layout.name_nonfinite(moments.rest)


def _input_square(a: Tensor, bias: bool) -> Tensor:
    """`sum a a^T` over samples and positions, `[..., n, t, i] -> [..., i, i]`."""
    flat = a.flatten(-3, -2)
    rows = with_one(flat) if bias else flat
    return rows.mT @ rows


def _divided(sums: Mapping[Names, Tensor], count: int) -> dict[Names, Tensor]:
    return {names: total / count for names, total in sums.items()}


def _add(sums: dict[Names, Tensor], names: Names, value: Tensor) -> None:
    sums[names] = sums[names] + value if names in sums else value


def _axes(parameters: Tensor | None) -> int:
    return 0 if parameters is None else parameters.dim() - 1
