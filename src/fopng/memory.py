"""Stored gradients of old tasks, `G [p, m]`, as an operator that is never written out."""

import itertools
import json
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Protocol, final

import torch
from torch import Tensor

from fopng.factors import LayerGradients, layer_gradients
from fopng.parameters import ParamLayout
from fopng.persample import SampleGradients

SLAB_BYTES = 64 * 2**20
"""How much of `G` is written out at a time for a Gram matrix."""


class MemoryFull(UserWarning):
    """Stored gradients were dropped because the memory reached its capacity."""


class Basis(Protocol):
    """Directions `B [p, m]` that a projection removes."""

    @property
    def count(self) -> int:
        """The number of directions, m."""
        ...

    @property
    def size(self) -> int:
        """The number of parameters, p."""
        ...

    def matvec(self, c: Tensor) -> Tensor:
        """`B c`: `[..., m] -> [..., p]`."""
        ...

    def rmatvec(self, x: Tensor) -> Tensor:
        """`B^T x`: `[..., p] -> [..., m]`."""
        ...

    def gram(self, weights: Tensor | None) -> Tensor:
        """`B^T diag(weights) B`: `[..., m, m]` in float64; no weights, no metric."""
        ...

    def dense(self) -> Tensor:
        """`B^T` written out, `[..., m, p]`."""
        ...


@dataclass
class _Segment:
    """Neighbouring rows of `G^T` in one layer, with the diagonal weight that multiplies them."""

    start: int
    gradients: LayerGradients
    weight: Tensor | None

    @property
    def rows(self) -> slice:
        return slice(self.start, self.start + self.gradients.count)

    def slab(self, part: slice) -> Tensor:
        dense = self.gradients.slab(part.start, part.stop)
        return dense if self.weight is None else dense * self.weight[..., None, part]


@final
class GradientMemory:
    """Gradients of old tasks, layer by layer, each task's with an optional diagonal weight (PreFisher's `F_t`).

    Args:
        layout: the flat order of the parameters.
        capacity: the most directions kept; beyond it every task's share is thinned evenly, with a warning. None: no limit.

    >>> memory = GradientMemory(ParamLayout({"weight": torch.Size([3])}))
    >>> memory.count, memory.nbytes
    (0, 0)
    """

    def __init__(self, layout: ParamLayout, *, capacity: int | None = None) -> None:
        if capacity is not None and capacity < 1:
            raise ValueError(f"Expected a capacity of at least 1 direction, got {capacity}.")
        self.layout, self.capacity = layout, capacity
        self.shares: list[int] = []
        self.dropped = 0
        self._layers: dict[tuple[str, ...], list[_Segment]] = {}

    @property
    def count(self) -> int:
        """The number of directions, m."""
        return sum(self.shares)

    @property
    def size(self) -> int:
        """The number of parameters, p."""
        return self.layout.size

    @property
    def nbytes(self) -> int:
        """Bytes held, weights included."""
        segments = [segment for layer in self._layers.values() for segment in layer]
        weights = sum(s.weight.numel() * s.weight.element_size() for s in segments if s.weight is not None)
        return weights + sum(segment.gradients.nbytes for segment in segments)

    def append(self, *gradients: SampleGradients, weight: Tensor | None = None) -> None:
        """Store the gradients of one more task.

        Args:
            gradients: of its samples, in as many blocks as they came.
            weight: a diagonal `[..., p]` that multiplies each of them.
        """
        start = self.count
        for block in gradients:
            if block.layout != self.layout:
                raise ValueError(
                    "Expected gradients of the memory's parameters, got another layout. Call relayout first."
                )
            for names, layer in block.layers.items():
                part = None if weight is None else weight[..., self.layout.span(names)].clone()
                self._add(names, _Segment(start, layer, part))
            start += block.count
        self.shares.append(sum(block.count for block in gradients))
        if self.capacity is not None and self.count > self.capacity:
            self._thin(self.capacity)

    def _add(self, names: tuple[str, ...], segment: _Segment) -> None:
        layer = self._layers.setdefault(names, [])
        last = layer[-1] if layer else None
        if last is not None and last.rows.stop == segment.start and last.weight is None and segment.weight is None:
            joined = last.gradients.append(segment.gradients)
            if joined is not None:
                last.gradients = joined
                return
        layer.append(segment)

    def _thin(self, capacity: int) -> None:
        """Keep evenly spaced directions of every task, so that all tasks have the same share."""
        if capacity < len(self.shares):
            raise ValueError(
                f"Expected room for a direction of each of {len(self.shares)} tasks, got max_directions={capacity}. Raise it."
            )
        before = self.count
        shares = _even_shares(self.shares, capacity)
        keep, start = [], 0
        for old, new in zip(self.shares, shares, strict=True):
            keep += [start + (k * old) // new for k in range(new)]
            start += old
        self._select(keep)
        self.shares = shares
        self.dropped += before - self.count
        warnings.warn(
            f"The gradient memory is full (max_directions={capacity}): kept {shares} directions of {len(shares)} tasks, dropped "
            f"{before - self.count}. Raise max_directions or lower gradients_per_task.",
            MemoryFull,
            stacklevel=4,
        )

    def _select(self, keep: list[int]) -> None:
        for names, layer in self._layers.items():
            kept = []
            for segment in layer:
                rows = segment.rows
                inside = [(new, old - rows.start) for new, old in enumerate(keep) if rows.start <= old < rows.stop]
                if inside:
                    device = next(iter(segment.gradients.tensors().values())).device
                    index = torch.tensor([old for _, old in inside], device=device)
                    kept.append(_Segment(inside[0][0], segment.gradients.select(index), segment.weight))
            self._layers[names] = kept

    def _parts(self) -> Iterator[tuple[slice, list[_Segment]]]:
        for names, segments in self._layers.items():
            yield self.layout.span(names), segments

    def _lead(self, *operands: Tensor | None) -> torch.Size:
        shapes = [x.shape[:-1] for x in operands if x is not None]
        for segments in self._layers.values():
            shapes += [segment.gradients.slab(0, 1).shape[:-2] for segment in segments[:1]]
        return torch.Size(torch.broadcast_shapes(*shapes))

    def rmatvec(self, x: Tensor) -> Tensor:
        """`G^T x`, weights included: `[..., p] -> [..., m]`."""
        out = x.new_zeros(*x.shape[:-1], self.count)
        for part, segments in self._parts():
            own = x[..., part]
            for segment in segments:
                weighted = own if segment.weight is None else own * segment.weight
                out[..., segment.rows] += segment.gradients.rmatvec(weighted)
        return out

    def matvec(self, c: Tensor) -> Tensor:
        """`G c`, weights included: `[..., m] -> [..., p]`."""
        out = c.new_zeros(*c.shape[:-1], self.size)
        for part, segments in self._parts():
            for segment in segments:
                own = segment.gradients.matvec(c[..., segment.rows])
                out[..., part] += own if segment.weight is None else own * segment.weight
        return out

    def gram(self, weights: Tensor | None) -> Tensor:
        """`G^T diag(weights) G`, slab by slab: `[..., m, m]`, added up in float64."""
        lead = self._lead(weights)
        out: Tensor | None = None
        for part, segments in self._parts():
            rows = torch.cat([torch.arange(s.rows.start, s.rows.stop) for s in segments])
            block = self._layer_gram(
                segments, None if weights is None else weights[..., part], part.stop - part.start, lead
            )
            if out is None:
                out = block.new_zeros(*lead, self.count, self.count)
            rows = rows.to(block.device)
            out[..., rows[:, None], rows] += block
        return torch.zeros(*lead, self.count, self.count, dtype=torch.float64) if out is None else out

    @staticmethod
    def _layer_gram(segments: list[_Segment], weights: Tensor | None, size: int, lead: torch.Size) -> Tensor:
        held = sum(segment.gradients.count for segment in segments)
        closed = (
            segments[0].gradients.gram()
            if weights is None and len(segments) == 1 and segments[0].weight is None
            else None
        )
        if closed is not None:
            return closed.double()
        total: Tensor | None = None
        width = max(1, SLAB_BYTES // (4 * max(1, held * lead.numel())))
        for start in range(0, size, width):
            columns = slice(start, min(start + width, size))
            slab = (
                torch.cat([s.slab(columns) for s in segments], -2) if len(segments) > 1 else segments[0].slab(columns)
            )
            if weights is not None:
                slab = slab * weights[..., None, columns].sqrt()
            product = _outer_square(slab).double()
            total = product if total is None else total.add_(product)
        assert total is not None
        return total

    def dense(self) -> Tensor:
        """`G^T` written out, weights included: `[..., m, p]`; for small models and tests."""
        out = self.like.new_zeros(*self._lead(), self.count, self.size)
        for part, segments in self._parts():
            for segment in segments:
                out[..., segment.rows, part] = segment.slab(slice(0, part.stop - part.start))
        return out

    @property
    def layers(self) -> tuple[tuple[str, ...], ...]:
        """The layers that hold gradients, each by the names of its parameters."""
        return tuple(key for key, segments in self._layers.items() if segments)

    @property
    def like(self) -> Tensor:
        """One of the tensors held, for its device and precision; the memory must not be empty."""
        return next(iter(self._layers[self.layers[0]][0].gradients.tensors().values()))

    def only(self, names: Collection[str]) -> "GradientMemory":
        """Look at the layers that have one of these parameters; the gradients themselves are shared, not copied."""
        view = GradientMemory(self.layout)
        view.shares = self.shares
        view._layers = {key: layer for key, layer in self._layers.items() if any(name in names for name in key)}
        return view

    def relayout(self, layout: ParamLayout) -> None:
        """Go on with a model that has more parameters (a new head): the stored gradients are zero there."""
        layout.check_extends(self.layout)
        self.layout = layout

    def to(self, device: torch.device | None = None, dtype: torch.dtype | None = None) -> None:
        """Move what is held to another device or precision."""
        state = {
            k: t.to(device=device, dtype=dtype if t.is_floating_point() else None) for k, t in self.state_dict().items()
        }
        self.load_state_dict(state)

    def state_dict(self) -> dict[str, Tensor]:
        """All that is held, as plain tensors: `shares`, `dropped`, and `[layer, row, name]` for each factor and weight."""
        state = {"shares": torch.tensor(self.shares, dtype=torch.int64), "dropped": torch.tensor(self.dropped)}
        for names, segments in self._layers.items():
            for segment in segments:
                held = segment.gradients.tensors() | ({} if segment.weight is None else {"weight": segment.weight})
                state |= {json.dumps([names, segment.start, name]): tensor for name, tensor in held.items()}
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over what `state_dict` gave."""
        found: dict[tuple[tuple[str, ...], int], dict[str, Tensor]] = {}
        for key, tensor in state.items():
            if key not in ("shares", "dropped"):
                names, start, name = json.loads(key)
                found.setdefault((tuple(names), start), {})[name] = tensor
        self.shares, self.dropped = state["shares"].tolist(), int(state["dropped"])
        self._layers = {}
        for (names, start), tensors in sorted(found.items(), key=lambda item: item[0][1]):
            span = self.layout.span(names)
            weight = tensors.pop("weight", None)
            gradients = layer_gradients(tensors, size=span.stop - span.start)
            self._layers.setdefault(names, []).append(_Segment(start, gradients, weight))


def _outer_square(slab: Tensor) -> Tensor:
    """`S S^T`, of which only the lower half is worked out: `[..., m, q] -> [..., m, m]`."""
    m = slab.shape[-2]
    if m < 128:
        return slab @ slab.mT
    out = slab.new_empty(*slab.shape[:-1], m)
    edges = [m * k // 4 for k in range(5)]
    for top, bottom in itertools.pairwise(edges):
        block = slab[..., top:bottom, :] @ slab[..., :bottom, :].mT
        out[..., top:bottom, :bottom] = block
        out[..., :top, top:bottom] = block[..., :top].mT
    return out


def _even_shares(shares: list[int], capacity: int) -> list[int]:
    """Cut the largest shares until all fit: every task ends with the same number, or all it had."""
    level = capacity
    while sum(min(share, level) for share in shares) > capacity:
        level -= 1
    even = [min(share, level) for share in shares]
    for k, share in enumerate(shares):
        if sum(even) < capacity and share > level:
            even[k] += 1
    return even


@final
@dataclass(frozen=True)
class ScaledBasis:
    """A basis with a diagonal in front, `diag(scale) G`: FOPNG's `F_old G`.

    Args:
        inner: `G`.
        scale: `[..., p]`.
    """

    inner: Basis
    scale: Tensor

    @property
    def count(self) -> int:
        return self.inner.count

    @property
    def size(self) -> int:
        return self.inner.size

    def matvec(self, c: Tensor) -> Tensor:
        return self.inner.matvec(c).mul_(self.scale)

    def rmatvec(self, x: Tensor) -> Tensor:
        return self.inner.rmatvec(x * self.scale)

    def gram(self, weights: Tensor | None) -> Tensor:
        squared = self.scale.square()
        return self.inner.gram(squared if weights is None else squared * weights)

    def dense(self) -> Tensor:
        return self.inner.dense() * self.scale.unsqueeze(-2)


@final
@dataclass(frozen=True)
class MixedBasis:
    """Combinations of directions, `G mix`: what an empirical Fisher, `G G^T / m`, makes of `G` without being formed.

    Args:
        inner: `G`.
        mix: `[..., m, m]`.
    """

    inner: Basis
    mix: Tensor

    @property
    def count(self) -> int:
        return self.inner.count

    @property
    def size(self) -> int:
        return self.inner.size

    def matvec(self, c: Tensor) -> Tensor:
        return self.inner.matvec((self.mix.to(c.dtype) @ c.unsqueeze(-1)).squeeze(-1))

    def rmatvec(self, x: Tensor) -> Tensor:
        seen = self.inner.rmatvec(x)
        return (self.mix.mT.to(seen.dtype) @ seen.unsqueeze(-1)).squeeze(-1)

    def gram(self, weights: Tensor | None) -> Tensor:
        return self.mix.mT @ self.inner.gram(weights) @ self.mix

    def dense(self) -> Tensor:
        rows = self.inner.dense()
        return self.mix.mT.to(rows.dtype) @ rows
