"""A full memory made smaller: its directions combined into fewer that hold the most, instead of dropped.

Letters: `B [p, m]` the stored directions as they are projected on, `F` the metric of the projection, `C [m, k]` how they are
combined. The length of a direction is its length in `F^-1`, the one that the projection sees.
"""

from collections.abc import Iterator
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from fopng.core.vector import Vector
from fopng.curvature.metric import Metric
from fopng.gradients.directions import Basis, StoredGradients
from fopng.gradients.layers import DenseGradients, LayerGradients, LinearGradients, Names, SampleGradients
from fopng.memory.gradients import SLAB_BYTES, GradientMemory

_ROUNDING = 1e-12
"""Directions shorter than this share of the longest are none, squared lengths compared."""

WhenFull: TypeAlias = Literal["thin", "compress"]
"""What a full memory does: drop gradients of every task evenly, or combine all into fewer directions."""


def leading_directions(gram: Tensor, rank: int, energy: float | Tensor) -> Tensor:
    """The combinations `C [*lead, m, k]` that hold the most of the directions: leading eigenvectors of `B^T F^-1 B`.

    They are orthonormal, so that with `k = m` nothing would change: neither the span, nor a damped projection on it.

    Args:
        gram: `B^T F^-1 B [*lead, m, m]`, float64.
        rank: k.
        energy: the share of the squared length that is enough, a number or one a replica `[*lead]`; columns beyond it are zero.

    >>> leading_directions(torch.diag(torch.tensor([1.0, 4.0, 2.0])), 2, 1.0).abs()
    tensor([[0., 0.],
            [1., 0.],
            [0., 1.]])
    """
    values, vectors = torch.linalg.eigh(gram)
    values, vectors = values.flip(-1).clamp(min=0), vectors.flip(-1)[..., :rank]
    held = values.cumsum(-1)
    before = held - values
    enough = torch.as_tensor(energy, dtype=values.dtype, device=values.device).unsqueeze(-1) * held[..., -1:]
    # a direction is needed as long as those before it do not hold enough; rounding must not count as a direction
    needed = (before < enough * (1 - _ROUNDING)) & (values > _ROUNDING * values[..., :1])
    chosen: Tensor = vectors * needed[..., None, :rank]
    return chosen


def combine(memory: GradientMemory, combinations: Tensor, lengths: Vector | None = None) -> GradientMemory:
    """A memory of the combinations `G C`, weights included, that takes no more room a direction than a stored gradient.

    The gradient of a sample through a `Linear` layer is a sum of t rank-one terms, and so is its combination kept: the t terms
    nearest to it. All other layers are combined exactly.

    Args:
        memory: `G`.
        combinations: `C [*lead, m, k]`.
        lengths: what a unit of each parameter weighs, where near is not meant in the Euclidean sense; of a matrix, its rows and
            columns on average.
    """
    terms = _terms(memory)
    blocks: dict[str, list[tuple[Tensor, ...]]] = {name: [] for name in memory.shapes}
    for sums in _combined(memory, combinations):
        for name, part in sums.parts.items():
            weighs = None if lengths is None else lengths.parts.get(name)
            blocks[name].append(_nearest(part, terms[name], weighs) if terms[name] else (part,))
    axes = combinations.dim() - 2
    layers: dict[Names, LayerGradients] = {(name,): _joined(parts, axes) for name, parts in blocks.items()}
    return GradientMemory().appended(SampleGradients(layers, combinations.shape[-1]))


def _terms(memory: GradientMemory) -> dict[str, int]:
    """How many rank-one terms make a gradient, for the weights whose gradients are all factored; 0 for the others."""
    found: dict[str, int] = {}
    for block in memory.held:
        for k, name in enumerate(block.names):
            before, own = found.get(name), block.gradients
            if isinstance(own, LinearGradients) and k == 0 and before != 0:
                found[name] = max(own.positions, before or 0)
            else:
                found[name] = 0
    return found


def _combined(memory: GradientMemory, combinations: Tensor) -> Iterator[Vector]:
    """The columns of `G C` written out, `[some, *lead, *shape]`, a few at a time."""
    columns = combinations.movedim(-1, 0).to(memory.like.dtype)
    replicas, size = columns.shape[1:-1].numel(), sum(shape.numel() for shape in memory.shapes.values())
    for part in columns.split(max(1, SLAB_BYTES // (columns.element_size() * size * replicas))):
        yield memory.matvec(part)


def _margins(lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Weights of rows `[*lead, o, 1]` and of columns `[*lead, 1, i]` whose products are near to those of each entry."""
    squares = lengths.double().square()
    rows, columns = squares.mean(-1, keepdim=True).sqrt(), squares.mean(-2, keepdim=True).sqrt()
    return _above_zero(rows), _above_zero(columns)


def _above_zero(weights: Tensor) -> Tensor:
    """What weighs next to nothing weighs a little, so that it can be divided by."""
    largest = weights.flatten(-2).amax(-1)[..., None, None]
    return torch.where(largest > 0, weights.maximum(1e-4 * largest), 1.0)


def _nearest(matrices: Tensor, terms: int, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """The t rank-one terms nearest to each matrix `[..., o, i]`: `d [..., t, o]` and `a [..., t, i]` with the sum `d^T a`."""
    if lengths is None:
        return _leading_terms(matrices, terms)
    rows, columns = _margins(lengths)
    d, a = _leading_terms(matrices * rows * columns, terms)
    return (d / rows.mT).to(matrices.dtype), (a / columns).to(matrices.dtype)


def _leading_terms(matrices: Tensor, terms: int) -> tuple[Tensor, Tensor]:
    """The same, near in the Euclidean sense."""
    tall = matrices.shape[-2] > matrices.shape[-1]
    wide = (matrices.mT if tall else matrices).double()
    _, vectors = torch.linalg.eigh(wide @ wide.mT)
    left = vectors[..., -terms:].mT
    pair = left.to(matrices.dtype), (left @ wide).to(matrices.dtype)
    return pair[::-1] if tall else pair


def _joined(parts: list[tuple[Tensor, ...]], axes: int) -> LayerGradients:
    """Directions `[some, *lead, ...]` of one parameter as gradients, written out or as `d` and `a`."""
    whole = [torch.cat(column).movedim(0, axes).contiguous() for column in zip(*parts, strict=True)]
    return DenseGradients((whole[0],), axes) if len(whole) == 1 else LinearGradients(whole[1], whole[0], bias=False)


def captured(old: Basis, new: Basis, metric: Metric, like: Tensor) -> Tensor:
    """How much of the squared length of the old directions lies in the span of the new ones, in `F^-1`: `[*lead]`, float64.

    `tr(K12 K22^+ K21)` with `K12 = B_old^T F^-1 B_new` and `K22 = B_new^T F^-1 B_new`.

    Args:
        old: `B_old`.
        new: `B_new`.
        metric: `F`.
        like: a tensor of the precision that both are held in.
    """
    inner = metric.inverse_gram(new)
    unit = torch.eye(new.count, dtype=like.dtype, device=inner.device)
    rows = []
    for k in range(new.count):
        direction = new.matvec(unit[k].expand(*inner.shape[:-2], new.count))
        rows.append(old.rmatvec(metric.solve(direction)))
    cross = torch.stack(rows, -2).double()
    values, vectors = torch.linalg.eigh(inner)
    length = torch.where(values > _ROUNDING * values[..., -1:], values, torch.inf)
    inside: Tensor = (vectors.mT @ cross).square() / length.unsqueeze(-1)
    return inside.sum((-2, -1))


def lost_share(lengths: Tensor, kept: Tensor, memory: StoredGradients) -> Tensor:
    """The share of the squared length of all directions ever stored that a memory no longer holds: `[*lead]`.

    Args:
        lengths: squared lengths of the directions before, `[*lead, m]`.
        kept: how much of them is still held, `[*lead]`.
        memory: what held them: of its compressed directions a share had been lost before.
    """
    if memory.error is None:
        whole = lengths.sum(-1)
    else:
        old = lengths[..., : memory.shares[0]].sum(-1) / (1 - memory.error.double()).clamp(min=_ROUNDING)
        whole = old + lengths[..., memory.shares[0] :].sum(-1)
    return torch.where(whole > 0, 1 - kept / whole, 0.0).clamp(0, 1)
