"""Stored gradients of old tasks, `G [p, m]`, as an operator that is never written out."""

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias, final

import torch
from torch import Tensor
from torch.nn.functional import pad

from fopng.core.batch import NotFinite
from fopng.core.tree import node, tensors_in
from fopng.core.vector import Vector
from fopng.gradients.directions import Pieces, StoredGradients, outer_square
from fopng.gradients.layers import DenseGradients, LayerGradients, LinearGradients, Names, SampleGradients

SLAB_BYTES = 64 * 2**20
"""How much of `G` is written out at a time for a Gram matrix."""


class MemoryFull(UserWarning):
    """Stored gradients were dropped because the memory reached its capacity."""


@node
@final
@dataclass(frozen=True, eq=False)
class GradientBlock:
    """Neighbouring directions of one layer.

    Args:
        names: the parameters of the layer.
        start: the number of the first direction.
        gradients: with respect to these parameters.
        weight: a diagonal that multiplies them, `[*lead, *shape]` for each parameter; None for none.
    """

    names: Names
    start: int
    gradients: LayerGradients
    weight: tuple[Tensor, ...] | None = None

    @cached_property
    def rows(self) -> slice:
        """The numbers of the directions."""
        return slice(self.start, self.start + self.gradients.count)

    def written(self, k: int) -> Tensor:
        """The gradients of one parameter, the weight included: `[*lead, m, *shape]`."""
        rows = self.gradients.rows(k)
        if self.weight is None:
            return rows
        weight = self.weight[k]
        return rows * weight.unsqueeze(weight.dim() - len(self.gradients.shapes[k]))

    def slab(self, k: int, start: int, stop: int) -> Tensor:
        """Some columns of that, the parameter flattened: `[*lead, m, stop - start]`."""
        slab = self.gradients.slab(k, start, stop)
        if self.weight is None:
            return slab
        weight = self.weight[k]
        lead = weight.shape[: weight.dim() - len(self.gradients.shapes[k])]
        return slab * weight.reshape(*lead, 1, -1)[..., start:stop]

    def only(self, names: Collection[str]) -> "GradientBlock":
        """The gradients of these parameters, at least one of which it has."""
        keep = [k for k, name in enumerate(self.names) if name in names]
        if len(keep) == len(self.names):
            return self
        weight = None if self.weight is None else tuple(self.weight[k] for k in keep)
        return GradientBlock(tuple(self.names[k] for k in keep), self.start, self.gradients.only(keep), weight)

    def joined(self, other: "GradientBlock") -> "GradientBlock | None":
        """This block with one that follows it, None where the two do not go together."""
        if self.names != other.names or self.rows.stop != other.start or self.weight or other.weight:
            return None
        gradients = self.gradients.append(other.gradients)
        return None if gradients is None else replace(self, gradients=gradients)


_Piece: TypeAlias = tuple[GradientBlock, int]
"""A block, and the number of one of its parameters."""


@node
@final
@dataclass(frozen=True, eq=False)
class GradientMemory(StoredGradients):
    """Gradients of old tasks, layer by layer, each task's with an optional diagonal weight (PreFisher's `F_t`).

    Args:
        held: the gradients, in the order in which they are added up.
        shares: how many directions each task has; of a memory that was compressed, the first share is what all tasks before have.
        dropped: how many directions were dropped.
        error: the share of the squared length of all directions ever stored that was lost in compression, `[*lead]`; None before.

    >>> memory = GradientMemory()
    >>> gradients = SampleGradients({("weight",): DenseGradients((torch.ones(2, 3),))}, 2)
    >>> memory.appended(gradients).matvec(torch.tensor([1.0, 2.0]))["weight"]
    tensor([3., 3., 3.])
    """

    held: tuple[GradientBlock, ...] = ()
    shares: tuple[int, ...] = ()
    dropped: int = 0
    error: Tensor | None = None

    @cached_property
    def count(self) -> int:
        return sum(self.shares)

    @cached_property
    def layers(self) -> tuple[Names, ...]:
        return tuple(dict.fromkeys(block.names for block in self.held))

    @property
    def weighted(self) -> bool:
        return any(block.weight is not None for block in self.held)

    @property
    def like(self) -> Tensor:
        return self.held[0].gradients.like

    @property
    def latest(self) -> frozenset[str]:
        """The parameters that the gradients stored last reach."""
        return frozenset(name for block in self.held if block.rows.stop == self.count for name in block.names)

    def blocks(self) -> Iterator[tuple[Names, Pieces]]:
        for names in self.layers:
            own = [block for block in self.held if block.names == names]
            yield names, [(block.rows, block.gradients, block.weight) for block in own]

    # Other memories made from it

    def appended(
        self, *gradients: SampleGradients, weight: Vector | None = None, capacity: int | None = None
    ) -> "GradientMemory":
        """The memory with the gradients of one more task.

        Args:
            gradients: of its samples, in as many blocks as they came.
            weight: a diagonal that multiplies each of them.
            capacity: the most directions kept; beyond it every task's share is thinned evenly, with a warning. None: no limit.
        """
        _check_room(len(self.shares) + 1, capacity)
        _check_finite(gradients, weight)
        layers = {names: [block for block in self.held if block.names == names] for names in self.layers}
        start = self.count
        for samples in gradients:
            for names, own in samples.layers.items():
                block = GradientBlock(names, start, own, None if weight is None else _weights(weight, names, own))
                before = layers.setdefault(names, [])
                joined = before[-1].joined(block) if before else None
                before[-1:] = [joined] if joined is not None else [*before[-1:], block]
            start += samples.count
        held = tuple(block for own in layers.values() for block in own)
        whole = replace(self, held=held, shares=(*self.shares, start - self.count))
        return whole if capacity is None or start <= capacity else whole._thinned(capacity)

    def _thinned(self, capacity: int) -> "GradientMemory":
        """Drop all but evenly spaced directions of every task, so that no more than `capacity` are left."""
        shares = even_shares(list(self.shares), capacity)
        keep, start = [], 0
        for old, new in zip(self.shares, shares, strict=True):
            keep += [start + (k * old) // new for k in range(new)]
            start += old
        fewer = self.count - sum(shares)
        warnings.warn(
            f"The gradient memory is full (max_directions={capacity}): kept {shares} directions of {len(shares)} tasks, "
            f"dropped {fewer}. Raise max_directions or lower gradients_per_task.",
            MemoryFull,
            stacklevel=4,
        )
        held = []
        for block in self.held:
            rows = block.rows
            inside = [(new, old - rows.start) for new, old in enumerate(keep) if rows.start <= old < rows.stop]
            if inside:
                index = torch.tensor([old for _, old in inside])
                held.append(replace(block, start=inside[0][0], gradients=block.gradients.select(index)))
        return replace(self, held=tuple(held), shares=tuple(shares), dropped=self.dropped + fewer)

    def only(self, names: Collection[str]) -> "GradientMemory":
        held = tuple(block.only(names) for block in self.held if any(map(names.__contains__, block.names)))
        # nothing stored concerns these parameters: no directions, rather than directions that are all zero
        return replace(self, held=held, shares=self.shares if held else ())

    def mapped(self, change: Callable[[Names, LayerGradients], LayerGradients]) -> "GradientMemory":
        made = (replace(block, gradients=change(block.names, block.gradients)) for block in self.held)
        return replace(self, held=tuple(made))

    def resized(self, shapes: Mapping[str, torch.Size]) -> "GradientMemory":
        """The same gradients of parameters that have got more rows, zero there (a classifier with more classes).

        That is exact for stored logits: new rows of a classifier have no part in old ones.
        """
        return replace(self, held=tuple(_resized(block, shapes) for block in self.held))

    # The operator

    @cached_property
    def shapes(self) -> dict[str, torch.Size]:
        """The shapes of the parameters that gradients are stored of."""
        return {
            name: shape for block in self.held for name, shape in zip(block.names, block.gradients.shapes, strict=True)
        }

    @cached_property
    def _lead(self) -> torch.Size:
        return self.held[0].gradients.lead if self.held else torch.Size()

    @cached_property
    def _dtype(self) -> torch.dtype:
        return self.like.dtype

    @cached_property
    def _uncut(self) -> bool:
        """Whether every block has all directions."""
        return all(block.gradients.count == self.count for block in self.held)

    def rmatvec(self, x: Vector) -> Tensor:
        parts, total = x.parts, None
        like = next(iter(parts.values()), None)
        if self.held and like is not None and like.dtype != self._dtype:
            return self.rmatvec(x.map(lambda part: part.to(self._dtype))).to(like.dtype)
        for block in self.held:
            if parts.keys().isdisjoint(block.names):
                continue
            given = list(map(parts.get, block.names))
            if block.weight is not None:
                given = [None if part is None else part * own for part, own in zip(given, block.weight, strict=True)]
            found = block.gradients.rmatvec(given)
            if self._uncut:
                total = found if total is None else total + found
                continue
            if total is None:
                total = found.new_zeros(*found.shape[:-1], self.count)
            total[..., block.rows] += found
        return self._no_products(x) if total is None else total

    def _no_products(self, x: Vector) -> Tensor:
        """The products with a vector that has nothing in common with what is stored."""
        like, lead = (next(iter(x.parts.values())), x.replicas) if x.parts else (self.like, self._lead)
        return like.new_zeros(*(lead or self._lead), self.count)

    def matvec(self, c: Tensor) -> Vector:
        if self.held and c.dtype != self._dtype:
            return self.matvec(c.to(self._dtype)).map(lambda part: part.to(c.dtype))
        sums: dict[str, Tensor] = {}
        for block in self.held:
            found = block.gradients.combine(c if self._uncut else c[..., block.rows])
            if block.weight is not None:
                found = tuple(map(torch.mul, found, block.weight))
            for name, part in zip(block.names, found, strict=True):
                sums[name] = sums[name] + part if name in sums else part
        return Vector(sums, max(c.dim() - 1, len(self._lead)))

    def gram(self, weights: Vector | None) -> Tensor:
        lead = self._lead if weights is None else torch.broadcast_shapes(weights.replicas, self._lead)
        like = self.like if self.held else torch.empty(0) if weights is None else weights.like
        out = torch.zeros(*lead, self.count, self.count, dtype=torch.float64, device=like.device)
        pieces = self._pieces()
        for block in self.held:
            alone = weights is None and block.weight is None and all(len(pieces[name]) == 1 for name in block.names)
            closed = block.gradients.gram() if alone else None
            if closed is not None:
                out[..., block.rows, block.rows] += closed
                pieces = {name: own for name, own in pieces.items() if name not in block.names}
        for name, own in pieces.items():
            if weights is None or name in weights:
                self._add_products(out, own, None if weights is None else weights[name])
        return out

    def _pieces(self) -> dict[str, list[_Piece]]:
        """Where the gradients of each parameter are: those of one task in one form, those of another in another."""
        found: dict[str, list[_Piece]] = {}
        for block in self.held:
            for k, name in enumerate(block.names):
                found.setdefault(name, []).append((block, k))
        return found

    def _add_products(self, out: Tensor, own: Sequence[_Piece], weight: Tensor | None) -> None:
        """Add one parameter's part of `G^T diag(weight) G`, slab by slab."""
        block, k = own[0]
        size = block.gradients.shapes[k].numel()
        rows = slice(min(block.rows.start for block, _ in own), max(block.rows.stop for block, _ in own))
        width = max(1, SLAB_BYTES // (block.gradients.like.element_size() * out[..., 0, rows].numel()))
        root = (
            None
            if weight is None
            else weight.reshape(*weight.shape[: weight.dim() - len(block.gradients.shapes[k])], 1, size).sqrt()
        )
        for start in range(0, size, width):
            stop = min(start + width, size)
            slab = block.slab(k, start, stop) if len(own) == 1 else self._slab(own, rows, start, stop)
            out[..., rows, rows] += outer_square(slab if root is None else slab * root[..., start:stop])

    def _slab(self, own: Sequence[_Piece], rows: slice, start: int, stop: int) -> Tensor:
        """Some columns of one parameter's gradients in all these directions, weights included."""
        out = self.like.new_zeros(*self._lead, rows.stop - rows.start, stop - start)
        for block, k in own:
            out[..., block.rows.start - rows.start : block.rows.stop - rows.start, :] = block.slab(k, start, stop)
        return out

    def rows(self) -> Vector:
        parts = {}
        for name, own in self._pieces().items():
            parts[name] = self.like.new_zeros(*self._lead, self.count, *self.shapes[name])
            for block, k in own:
                parts[name].narrow(len(self._lead), block.start, block.gradients.count).copy_(block.written(k))
        return Vector(parts, len(self._lead) + 1)


def _check_room(tasks: int, capacity: int | None) -> None:
    """Raise where a task could not have a single direction."""
    if capacity is not None and capacity < tasks:
        raise ValueError(
            f"Expected room for a direction of each of {tasks} tasks, got max_directions={capacity}. Raise it."
        )


def _check_finite(gradients: Sequence[SampleGradients], weight: Vector | None) -> None:
    """Raise for what is not to be stored."""
    wrong = set() if weight is None else set(weight.name_nonfinite())
    for samples in gradients:
        for names, own in samples.layers.items():
            if not all(bool(tensor.isfinite().all()) for tensor in tensors_in(own)):
                wrong.update(names)
    if wrong:
        raise NotFinite(
            f"Expected finite gradients to store, got NaN or infinity in {sorted(wrong)}. Has the training diverged?"
        )


def _weights(weight: Vector, names: Names, gradients: LayerGradients) -> tuple[Tensor, ...]:
    """A layer's part of a diagonal; what that has no part of is zero."""
    return tuple(
        weight[name] if name in weight else gradients.like.new_zeros((*gradients.lead, *shape))
        for name, shape in zip(names, gradients.shapes, strict=True)
    )


def even_shares(shares: list[int], capacity: int) -> list[int]:
    """Cut the largest shares until all fit: every task ends with the same number, or all it had.

    >>> even_shares([5, 5, 1], 8)
    [4, 3, 1]
    """
    level = capacity
    while sum(min(share, level) for share in shares) > capacity:
        level -= 1
    even = [min(share, level) for share in shares]
    for k, share in enumerate(shares):
        if sum(even) < capacity and share > level:
            even[k] += 1
    return even


def _resized(block: GradientBlock, shapes: Mapping[str, torch.Size]) -> GradientBlock:
    """A block of parameters that have got more rows: inputs stay, signals and what is written out get an entry for each new row."""
    olds = block.gradients.shapes
    more = [shapes.get(name, old)[:1].numel() - old[:1].numel() for name, old in zip(block.names, olds, strict=True)]
    if not any(more):
        return block
    weight = block.weight and tuple(map(_with_rows, block.weight, olds, more))
    own = block.gradients
    if isinstance(own, LinearGradients):
        return replace(block, gradients=replace(own, d=pad(own.d, (0, more[0]))), weight=weight)
    assert isinstance(own, DenseGradients)
    return replace(block, gradients=replace(own, parts=tuple(map(_with_rows, own.parts, olds, more))), weight=weight)


def _with_rows(part: Tensor, shape: torch.Size, more: int) -> Tensor:
    """A tensor `[..., *shape]` with more rows of zeros at the end."""
    return pad(part, (0, 0) * (len(shape) - 1) + (0, more)) if more else part
