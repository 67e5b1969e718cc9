"""Which parameters of a model are trained: their names, shapes and order."""

import functools
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
    """The names and shapes of parameters, in order; `split` and `join` go between tensors by name and one flat `[..., p]`.

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

    def check_extends(self, old: "ParamLayout") -> None:
        """Raise unless this layout has every parameter of `old`, in the same shape."""
        gone = [name for name in old.shapes if name not in self.shapes]
        if gone:
            raise ValueError(f"Expected the parameters {gone}, which this model does not have (or has frozen).")
        for name, shape in old.shapes.items():
            if self.shapes[name] != shape:
                raise ValueError(f"Expected {name!r} of shape {tuple(shape)}, got {tuple(self.shapes[name])}.")
