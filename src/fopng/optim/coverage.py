"""How each layer of a model is protected by a Kronecker-factored Fisher: what has one, what has less, and what it costs."""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from fopng.core.batch import Batch, Predict, predict_pairs, sample_count
from fopng.core.likelihood import Likelihood
from fopng.core.tree import bytes_of
from fopng.curvature.estimate import layer_moments
from fopng.curvature.factor_sums import matrix_form
from fopng.curvature.factors import DiagonalFactor, LowRankFactor, size
from fopng.curvature.moments import LayerMoments, Moments
from fopng.curvature.sampling import LoaderStream
from fopng.gradients.layers import Names
from fopng.gradients.per_sample import PerSampleGradients

ENOUGH = 0.9
"""The share of the parameters in matrices that have a Kronecker product, below which a method says so."""

KRONECKER, DIAGONAL, UNREACHED, FROZEN = "Kronecker", "diagonal", "not reached", "frozen"

RANK = 128
"""How many eigenvectors of a layer's inputs methods keep unless they are told otherwise."""


@final
@dataclass(frozen=True)
class CoveredLayer:
    """What is known of one layer.

    Args:
        names: its parameters.
        parameters: how many numbers they are.
        protection: what holds it: a Kronecker product, with what is special about it, a diagonal, or nothing.
        bytes: what is kept of it for all old tasks.
        cost: multiply-adds of holding a step back, over those of learning from this batch.
    """

    names: Names
    parameters: int
    protection: str
    bytes: int
    cost: float


@final
@dataclass(frozen=True)
class Coverage:
    """A model's layers, and how they are protected; `print` it for a table.

    Args:
        layers: in the model's order.
        share: of the trainable parameters in matrices that the batch reached, those that have a Kronecker product.
    """

    layers: tuple[CoveredLayer, ...]
    share: float

    def __str__(self) -> str:
        head = ("layer", "parameters", "protection", "kept", "cost of a step")
        rows = [head, *(_words(layer) for layer in self.layers)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(wide) for cell, wide in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([*lines, f"{self.share:.1%} of the parameters in matrices have a Kronecker product."])


def _words(layer: CoveredLayer) -> tuple[str, ...]:
    name = ", ".join(layer.names)
    return name, f"{layer.parameters:,}", layer.protection, f"{layer.bytes / 1e6:.2f} MB", f"{layer.cost:.2f}"


def coverage(
    model: nn.Module,
    batch: Batch,
    *,
    predict: Predict | None = None,
    likelihood: Likelihood | None = None,
    rank: int | None = RANK,
) -> Coverage:
    """Look how `KroneckerFOPNG` and `NCL` would protect each layer of a model.

    Args:
        model: the model.
        batch: some samples; what they do not reach is not protected.
        predict: how the model answers a batch; `model(x)` on `(x, y)` by default.
        likelihood: what its outputs mean.
        rank: how many eigenvectors of a layer's inputs are kept; None for all.

    >>> print(coverage(nn.Linear(3, 2), (torch.ones(4, 3), torch.tensor([0, 1, 1, 0]))))
    layer         parameters  protection  kept     cost of a step
    weight, bias  8           Kronecker   0.00 MB  1.00
    100.0% of the parameters in matrices have a Kronecker product.
    """
    source = PerSampleGradients(model, predict=predict_pairs if predict is None else predict, likelihood=likelihood)
    stream = LoaderStream([batch], torch.Generator().manual_seed(0))
    moments = layer_moments(source, stream, signals="sampled")
    positions = {use.names[0]: use.a.shape[use.lead : use.lead + 2].numel() for use in source.inputs(batch)}
    named = dict(model.named_parameters())
    order = {name: k for k, name in enumerate(named)}
    layers = []
    for names, own in moments.layers.items():
        rows = positions.get(names[0], sample_count(batch))
        count = sum(named[name].numel() for name in names)
        layers.append(
            CoveredLayer(names, count, _protection(own), bytes_of(own), _cost(own, rank) / (3 * rows * count))
        )
    layers += [
        _single(name, own, moments.rest.parts, sample_count(batch))
        for name, own in named.items()
        if _left(name, moments)
    ]
    layers.sort(key=lambda layer: order[layer.names[0]])
    return Coverage(tuple(layers), share_of(moments))


def _left(name: str, moments: Moments) -> bool:
    return all(name not in names for names in moments.layers)


def _single(name: str, own: Tensor, rest: Mapping[str, Tensor], n: int) -> CoveredLayer:
    """A parameter that is in no layer."""
    held = name in rest and bool((rest[name] > 0).any())
    protection = FROZEN if not own.requires_grad else DIAGONAL if held else UNREACHED
    return CoveredLayer((name,), own.numel(), protection, bytes_of(rest[name]) if held else 0, held / (3 * n))


def _protection(own: LayerMoments) -> str:
    """In words, with what is special about its factors."""
    special = [f"{own.form.groups} groups"] * (own.form.groups > 1)
    for side, factor in (("inputs", own.inputs), ("outputs", own.signals)):
        if isinstance(factor, LowRankFactor):
            special.append(f"{factor.rows.shape[-2]} of {size(factor)} {side}")
        if isinstance(factor, DiagonalFactor):
            special.append(f"each of {size(factor)} {side} by itself")
    return ", ".join([KRONECKER, *special])


def _cost(own: LayerMoments, rank: int | None) -> int:
    """Multiply-adds of `f(F) M`."""
    o, i = size(own.signals), size(own.inputs)
    plain = isinstance(own.inputs, DiagonalFactor)
    k = i if plain or rank is None else min(rank, i)
    turning = 0 if plain else 2 * o * i * k
    outputs = 0 if isinstance(own.signals, DiagonalFactor) else 2 * o * _kept(own, rank) * k
    return (turning + outputs + (o * o * i if k < i else 0)) * own.form.groups


def _kept(own: LayerMoments, rank: int | None) -> int:
    """How many eigenvectors of its outputs are used."""
    o = size(own.signals)
    return min(o, rank or o) if isinstance(own.signals, LowRankFactor) else o


def share_of(moments: Moments) -> float:
    """Of the parameters in matrices that the data reached, the share that has a Kronecker product; 1 where there are none."""
    inside = sum(own.parameters for own in moments.layers.values())
    outside = sum(part.numel() for part in _plain_matrices(moments).values())
    return inside / (inside + outside) if inside + outside else 1.0


def _plain_matrices(moments: Moments) -> dict[str, Tensor]:
    """The matrices that have a diagonal alone."""
    lead = moments.rest.lead
    return {
        name: part
        for name, part in moments.rest.parts.items()
        if matrix_form(part.shape[lead:]) is not None and bool((part > 0).any())
    }


def warn_if_uncovered(moments: Moments, owner: str) -> None:
    """Warn where much of a model does not have a method's own metric, and name it.

    Args:
        moments: of a task.
        owner: the name of the method.
    """
    share = share_of(moments)
    if share < ENOUGH:
        warnings.warn(
            f"{owner} holds {share:.0%} of the parameters in matrices by a Kronecker product. By a diagonal alone, which "
            f"protects little: {_listed(_plain_matrices(moments))}. See fopng.coverage(model, batch).",
            stacklevel=2,
        )


def _listed(names: Iterable[str], most: int = 8) -> str:
    named = list(names)
    more = f" and {len(named) - most} more" if len(named) > most else ""
    return ", ".join(named[:most]) + more
