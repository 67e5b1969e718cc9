"""The flat parameter vector and its named views: the only flatten and unflatten."""

import functools
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn


def wide_dtype(parameters: Iterable[Tensor]) -> torch.dtype:
    """The precision that a method calculates in: that of the parameters, float32 instead of half."""
    kind = functools.reduce(torch.promote_types, {parameter.dtype for parameter in parameters})
    return torch.float32 if kind in (torch.half, torch.bfloat16) else kind


@dataclass(frozen=True, eq=False)
class ParamLayout:
    """Where each named parameter lies in a flat vector `[..., p]`; insertion order is the flat order.

    >>> layout = ParamLayout.of(nn.Linear(3, 2))
    >>> layout.size, layout.names
    (8, ('weight', 'bias'))
    >>> layout.split(torch.zeros(5, 8))["weight"].shape
    torch.Size([5, 2, 3])
    """

    shapes: Mapping[str, torch.Size]

    @classmethod
    def of(cls, model: nn.Module) -> "ParamLayout":
        """Lay out the trainable parameters of a model; a tied parameter counts once, under its first name."""
        trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
        if not trainable:
            raise ValueError("Expected a model with trainable parameters, got none. Set requires_grad on some of them.")
        for name, parameter in trainable.items():
            if isinstance(parameter, nn.parameter.UninitializedParameter):
                raise ValueError(f"Parameter {name!r} has no shape yet. Run the model once on a batch before this.")
            if not parameter.is_floating_point():
                raise TypeError(f"Expected real parameters, got {parameter.dtype} in {name!r}. Freeze it.")
        return cls({name: p.shape for name, p in trainable.items()})

    def __eq__(self, other: object) -> bool:
        # two dictionaries are equal in any order, two layouts are not
        return isinstance(other, ParamLayout) and tuple(self.shapes.items()) == tuple(other.shapes.items())

    def __hash__(self) -> int:
        return hash(tuple(self.shapes.items()))

    @cached_property
    def slices(self) -> dict[str, slice]:
        """The part of the flat vector that each parameter fills."""
        parts, start = {}, 0
        for name, shape in self.shapes.items():
            parts[name] = slice(start, start + shape.numel())
            start += shape.numel()
        return parts

    @cached_property
    def _sizes(self) -> list[int]:
        return [shape.numel() for shape in self.shapes.values()]

    @cached_property
    def size(self) -> int:
        """The number of parameters, p."""
        return sum(shape.numel() for shape in self.shapes.values())

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters' names, in flat order."""
        return tuple(self.shapes)

    def span(self, names: Iterable[str]) -> slice:
        """Return the one slice that neighbouring parameters fill together."""
        parts = [self.slices[name] for name in names]
        if any(left.stop != right.start for left, right in itertools.pairwise(parts)):
            raise ValueError(f"Expected neighbours in the flat order, got {list(names)}.")
        return slice(parts[0].start, parts[-1].stop)

    def runs(self, names: Iterable[str]) -> list[tuple[str, ...]]:
        """Group parameters, in flat order, into those of one module that lie side by side.

        >>> ParamLayout.of(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))).runs(["1.weight", "0.bias", "0.weight"])
        [('0.weight', '0.bias'), ('1.weight',)]
        """
        found: list[tuple[str, ...]] = []
        for name in sorted(names, key=lambda name: self.slices[name].start):
            last = found[-1][-1] if found else None
            near = last is not None and self.slices[last].stop == self.slices[name].start
            if last is not None and near and last.rpartition(".")[0] == name.rpartition(".")[0]:
                found[-1] = (*found[-1], name)
            else:
                found.append((name,))
        return found

    def split(self, flat: Tensor) -> dict[str, Tensor]:
        """View a flat vector `[..., p]` as named tensors `[..., *shape]`."""
        if flat.shape[-1] != self.size:
            raise ValueError(f"Expected a last axis of {self.size} parameters, got shape {tuple(flat.shape)}.")
        lead = flat.shape[:-1]
        pieces = zip(self.shapes.items(), flat.split_with_sizes(self._sizes, -1), strict=True)
        return {name: piece.view((*lead, *shape)) for (name, shape), piece in pieces}

    def join(self, named: Mapping[str, Tensor | None], out: Tensor | None = None) -> Tensor:
        """Flatten named tensors `[..., *shape]` into `[..., p]`, `out` if given; an absent name (another task's head) is zero."""
        if tuple(named) == self.names and all(
            v is not None and v.shape == s for v, s in zip(named.values(), self.shapes.values(), strict=True)
        ):
            # the usual case of a step, and quicker: everything there, no replicas
            return torch.cat([value.reshape(-1) for value in named.values() if value is not None], out=out)
        present = {name: value for name, value in named.items() if value is not None}
        unknown = [name for name in present if name not in self.shapes]
        if unknown or not present:
            raise ValueError(f"Expected some of the parameters {list(self.shapes)}, got {unknown or 'none'}.")
        name, value = next(iter(present.items()))
        lead = value.shape[: value.dim() - len(self.shapes[name])]
        pieces = []
        for name, shape in self.shapes.items():
            piece = present.get(name)
            if piece is None:
                piece = value.new_zeros(1).expand(*lead, shape.numel())
            elif piece.shape != (*lead, *shape):
                raise ValueError(f"Expected {name!r} of shape {(*lead, *shape)}, got {tuple(piece.shape)}.")
            pieces.append(piece.reshape(*lead, shape.numel()))
        return torch.cat(pieces, -1, out=out)

    def carry(self, flat: Tensor, old: "ParamLayout") -> Tensor:
        """Move a flat vector of an older layout into this one; parameters that are new (a new head) are zero."""
        self.check_extends(old)
        return flat if self == old else self.join(old.split(flat))

    def check_extends(self, old: "ParamLayout") -> None:
        """Raise unless this layout has every parameter of `old`, in the same shape."""
        gone = [name for name in old.shapes if name not in self.shapes]
        if gone:
            raise ValueError(f"Expected the parameters {gone}, which this model does not have (or has frozen).")
        for name, shape in old.shapes.items():
            if self.shapes[name] != shape:
                raise ValueError(f"Expected {name!r} of shape {tuple(shape)}, got {tuple(self.shapes[name])}.")

    def name_nonfinite(self, flat: Tensor) -> list[str]:
        """Name the parameters whose part of a flat vector holds a NaN or an infinity."""
        return [name for name, value in self.split(flat).items() if not bool(value.isfinite().all())]
