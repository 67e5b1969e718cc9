"""Stored gradients of old tasks, `G [p, m]`, as an operator that is never written out."""

import itertools
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeAlias, final

import torch
from torch import Tensor

from fopng.core.batch import NotFinite
from fopng.core.layout import ParamLayout
from fopng.gradients.directions import Basis, MixedBasis, ScaledBasis, outer_square
from fopng.gradients.layers import LayerGradients, LinearGradients, SampleGradients, layer_gradients
from fopng.gradients.segments import Names, Segment
from fopng.gradients.stored import MemoryFull, Pieces, StoredGradients, apart

__all__ = ["Basis", "GradientMemory", "MemoryFull", "MixedBasis", "ScaledBasis"]

SLAB_BYTES = 64 * 2**20
"""How much of `G` is written out at a time for a Gram matrix."""


_Layer: TypeAlias = tuple[slice, list[Segment]]


@final
class GradientMemory(StoredGradients):
    """Gradients of old tasks, layer by layer, each task's with an optional diagonal weight (PreFisher's `F_t`).

    Args:
        layout: the flat order of the parameters.
        capacity: the most directions kept; beyond it every task's share is thinned evenly, with a warning. None: no limit.

    Attributes:
        shares: how many directions each task has; of a memory that was compressed, the first share is what all tasks before have.
        error: the share of the squared length of all directions ever stored that was lost in compression, `[...]`; None before.

    >>> memory = GradientMemory(ParamLayout({"weight": torch.Size([3])}))
    >>> memory.count, memory.nbytes
    (0, 0)
    """

    def __init__(self, layout: ParamLayout, *, capacity: int | None = None) -> None:
        super().__init__(layout, capacity)
        self._layers: dict[Names, list[Segment]] = {}
        self._parts: list[_Layer] = []
        self._apart, self._covers = True, False

    @property
    def nbytes(self) -> int:
        weights = [segment.weight for segment in self._segments() if segment.weight is not None]
        held = sum(segment.gradients.nbytes for segment in self._segments())
        return held + sum(weight.numel() * weight.element_size() for weight in weights)

    @property
    def layers(self) -> tuple[Names, ...]:
        return tuple(self._layers)

    @property
    def weighted(self) -> bool:
        return any(segment.weight is not None for segment in self._segments())

    def empty(self, layout: ParamLayout) -> "GradientMemory":
        return GradientMemory(layout, capacity=self.capacity)

    def turns(self, count: int) -> range:
        return range(count)

    @property
    def latest(self) -> frozenset[str]:
        last = [names for names, layer in self._layers.items() if layer[-1].rows.stop == self.count]
        return frozenset(name for names in last for name in names)

    @property
    def terms(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for names, layer in self._layers.items():
            for name in names:
                factored = [s.gradients.positions for s in layer if isinstance(s.gradients, LinearGradients)]
                whole = len(factored) == len(layer) and name == names[0] and found.get(name, 1) > 0
                found[name] = max(*factored, found.get(name, 0)) if whole else 0
        return found

    @property
    def like(self) -> Tensor:
        return next(iter(next(self._segments()).gradients.tensors().values()))

    def append(self, *gradients: SampleGradients, weight: Tensor | None = None) -> None:
        self.check(gradients, weight)
        start = self.count
        for block in gradients:
            for names, layer in block.layers.items():
                part = None if weight is None else weight[..., self.layout.span(names)].clone()
                self._add(names, Segment(start, layer, part))
            start += block.count
        self._arrange(self._layers)
        self.shares.append(sum(block.count for block in gradients))
        keep = self.thinned()
        if keep is not None:
            self._select(keep)

    def check(self, gradients: Sequence[SampleGradients], weight: Tensor | None) -> None:
        """Raise for what could not be appended."""
        self.check_room()
        wrong = [] if weight is None else self.layout.name_nonfinite(weight)
        for block in gradients:
            if block.layout != self.layout:
                raise ValueError(
                    "Expected gradients of the memory's parameters, got another layout. Call relayout first."
                )
            for names, layer in block.layers.items():
                if not all(bool(t.isfinite().all()) for t in layer.tensors().values()):
                    wrong += names
        if wrong:
            raise NotFinite(
                f"Expected finite gradients to store, got NaN or infinity in {sorted(set(wrong))}. Has the training diverged?"
            )

    def _add(self, names: Names, segment: Segment) -> None:
        layer = self._layers.setdefault(names, [])
        last = layer[-1] if layer else None
        if last is not None and last.rows.stop == segment.start and last.weight is None and segment.weight is None:
            joined = last.gradients.append(segment.gradients)
            if joined is not None:
                last.gradients = joined
                return
        layer.append(segment)

    def _arrange(self, layers: dict[Names, list[Segment]]) -> None:
        """Take layers in flat order: sums then run in the same order however the memory came about."""
        placed = sorted((self.layout.span(names).start, names) for names, segments in layers.items() if segments)
        self._layers = {names: layers[names] for _, names in placed}
        self._parts = [(self.layout.span(names), segments) for names, segments in self._layers.items()]
        spans = sorted((part.start, part.stop) for part, _ in self._parts)
        self._apart = all(left[1] <= right[0] for left, right in itertools.pairwise(spans))
        everywhere = sum(stop - start for start, stop in spans) == self.size
        self._covers = self._apart and everywhere and all(_alone(segments) for _, segments in self._parts)

    def select(self, keep: list[int]) -> None:
        """Keep some directions, by their numbers, rising, as one share."""
        self._select(keep)
        self.shares = [len(keep)]

    def _select(self, keep: list[int]) -> None:
        kept: dict[Names, list[Segment]] = {names: [] for names in self._layers}
        for names, layer in self._layers.items():
            for segment in layer:
                rows = segment.rows
                inside = [(new, old - rows.start) for new, old in enumerate(keep) if rows.start <= old < rows.stop]
                if inside:
                    index = torch.tensor([old for _, old in inside])
                    kept[names].append(Segment(inside[0][0], segment.gradients.select(index), segment.weight))
        self._arrange(kept)

    def _segments(self) -> Iterator[Segment]:
        return itertools.chain.from_iterable(self._layers.values())

    def _lead(self, *operands: Tensor | None) -> torch.Size:
        """The replica axes of a result: those of the memory and of what it is multiplied with."""
        shapes = {x.shape[:-1] for x in operands if x is not None}
        for segment in self._segments():
            shapes |= {segment.gradients.lead} | (set() if segment.weight is None else {segment.weight.shape[:-1]})
        return shapes.pop() if len(shapes) == 1 else torch.broadcast_shapes(*shapes)

    def rmatvec(self, x: Tensor) -> Tensor:
        """`G^T x`, weights included: `[..., p] -> [..., m]`."""
        if not self._parts:
            return x.new_zeros(*x.shape[:-1], self.count)
        given = x.to(self.like.dtype)
        out = given.new_zeros(*self._lead(x), self.count)
        for part, segments in self._parts:
            own = given[..., part]
            for segment in segments:
                weighted = own if segment.weight is None else own * segment.weight
                out[..., segment.rows] += segment.gradients.rmatvec(weighted)
        return out.to(x.dtype)

    def matvec(self, c: Tensor) -> Tensor:
        """`G c`, weights included: `[..., m] -> [..., p]`."""
        if not self._parts:
            return c.new_zeros(*c.shape[:-1], self.size)
        given = c.to(self.like.dtype)
        shape = *self._lead(c), self.size
        out = given.new_empty(shape) if self._covers else given.new_zeros(shape)
        for part, segments in self._parts:
            place = out[..., part]
            if self._apart and _alone(segments):
                # the usual case: one block of rows, which shares its parameters with no other, goes straight to its place
                segments[0].gradients.combine(given[..., segments[0].rows], place)
                continue
            for segment in segments:
                own = segment.gradients.matvec(given[..., segment.rows])
                place += own if segment.weight is None else own * segment.weight
        return out.to(c.dtype)

    def gram(self, weights: Tensor | None) -> Tensor:
        """`G^T diag(weights) G`, slab by slab: `[..., m, m]`, added up in float64."""
        lead = self._lead(weights)
        device = weights.device if weights is not None else self.like.device if self._parts else None
        out = torch.zeros(*lead, self.count, self.count, dtype=torch.float64, device=device)
        for span, layers in self._groups():
            segments = [segment for _, own in layers for segment in own]
            rows = slice(min(s.rows.start for s in segments), max(s.rows.stop for s in segments))
            closed = segments[0].gradients.gram() if len(segments) == 1 and segments[0].weight is None else None
            if closed is not None and weights is None:
                out[..., rows, rows] += closed
                continue
            width = max(1, SLAB_BYTES // (self.like.element_size() * (rows.stop - rows.start) * lead.numel()))
            for start in range(span.start, span.stop, width):
                columns = slice(start, min(start + width, span.stop))
                slab = self._slab(layers, rows, columns, lead)
                if weights is not None:
                    slab *= weights[..., None, columns].sqrt()
                out[..., rows, rows] += outer_square(slab)
        return out

    def _groups(self) -> Iterator[tuple[slice, list[_Layer]]]:
        """Layers that share parameters (factored for one task, written out for another): their products count, too."""
        group: list[_Layer] = []
        stop = 0
        for part, segments in self._parts:
            if group and part.start >= stop:
                yield slice(group[0][0].start, stop), group
                group = []
            group.append((part, segments))
            stop = max(stop, part.stop)
        if group:
            yield slice(group[0][0].start, stop), group

    def _slab(self, layers: list[_Layer], rows: slice, columns: slice, lead: torch.Size) -> Tensor:
        """Write out some columns of `G^T`, weights included: `[..., rows, columns]`."""
        out = self.like.new_zeros(*lead, rows.stop - rows.start, columns.stop - columns.start)
        for part, segments in layers:
            start, stop = max(part.start, columns.start), min(part.stop, columns.stop)
            for segment in segments if start < stop else []:
                own = slice(segment.rows.start - rows.start, segment.rows.stop - rows.start)
                dense = segment.slab(slice(start - part.start, stop - part.start))
                out[..., own, start - columns.start : stop - columns.start] = dense
        return out

    def dense(self) -> Tensor:
        """`G^T` written out, weights included: `[..., m, p]`; for small models and tests."""
        return self.slab(slice(0, self.size)) if self._parts else torch.zeros(self.count, self.size)

    def slab(self, columns: slice) -> Tensor:
        """Some columns of that; the memory must not be empty."""
        return self._slab(self._parts, slice(0, self.count), columns, self._lead())

    def only(self, names: Collection[str]) -> "GradientMemory":
        view = GradientMemory(self.layout)
        view._arrange({key: layer for key, layer in self._layers.items() if any(name in names for name in key)})
        # nothing stored concerns these parameters: no directions, rather than directions that are all zero
        view.shares = self.shares if view.layers else []
        return view

    def mapped(self, change: Callable[[Names, LayerGradients], LayerGradients]) -> "GradientMemory":
        view = GradientMemory(self.layout)
        view._arrange(
            {
                names: [Segment(own.start, change(names, own.gradients), own.weight) for own in segments]
                for names, segments in self._layers.items()
            }
        )
        view.shares = self.shares
        return view

    def blocks(self) -> Iterator[tuple[Names, Pieces]]:
        for names, segments in self._layers.items():
            yield names, [(own.rows, own.gradients, own.weight) for own in segments]

    def relayout(self, layout: ParamLayout) -> None:
        layout.check_extends(self.layout)
        old, self.layout = self.layout, layout
        layers: dict[Names, list[Segment]] = {}
        for names, segments in self._layers.items():
            parts = apart(names, layout)
            if parts == [names]:
                layers.setdefault(names, []).extend(segments)
                continue
            # no longer neighbours (a parameter that was frozen lies between them): one by one
            for own in parts:
                part = _within(old, names, own[0])
                layers.setdefault(own, []).extend(segment.only(part) for segment in segments)
        self._arrange(layers)

    def to(self, device: torch.device | None = None, dtype: torch.dtype | None = None) -> None:
        """Move what is held to another device or precision."""
        state = {
            k: t.to(device=device, dtype=dtype if t.is_floating_point() else None) for k, t in self.state_dict().items()
        }
        self.load_state_dict(state)

    def load_state_dict(self, state: dict[str, Tensor], like: Tensor | None = None) -> None:
        if like is not None:
            state = {key: tensor.to(like) if tensor.is_floating_point() else tensor for key, tensor in state.items()}
        found: dict[tuple[Names, int], dict[str, Tensor]] = {}
        for key, tensor in state.items():
            if key not in ("shares", "dropped", "error"):
                names, start, name = json.loads(key)
                found.setdefault((tuple(names), start), {})[name] = tensor
        unknown = {name for names, _ in found for name in names if name not in self.layout.shapes}
        if unknown:
            raise ValueError(f"Expected gradients of the model's parameters, got some of {sorted(unknown)}.")
        self.shares, self.dropped = state["shares"].tolist(), int(state["dropped"])
        self.error = state.get("error")
        layers: dict[Names, list[Segment]] = {}
        for (names, start), tensors in sorted(found.items(), key=lambda item: item[0][1]):
            span = self.layout.span(names)
            weight = tensors.pop("weight", None)
            gradients = layer_gradients(tensors, size=span.stop - span.start)
            layers.setdefault(names, []).append(Segment(start, gradients, weight))
        self._arrange(layers)


def _within(layout: ParamLayout, names: Names, name: str) -> slice:
    """Where one parameter lies among its neighbours."""
    start = layout.slices[names[0]].start
    return slice(layout.slices[name].start - start, layout.slices[name].stop - start)


def _alone(segments: list[Segment]) -> bool:
    """Whether one block of rows, as it is, makes a layer."""
    return len(segments) == 1 and segments[0].weight is None
