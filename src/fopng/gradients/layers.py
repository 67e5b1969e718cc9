"""Per-sample gradients of one layer, kept as exact factors where that is smaller.

Axes: `*lead` replicas, `m` gradient, `t` position, `o` output, `i` input; `shape` is that of a parameter.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import TypeAlias, final

import torch
from torch import Tensor

from fopng.core.kernels import kernel, usable
from fopng.core.tree import node
from fopng.core.vector import Vector

Names: TypeAlias = tuple[str, ...]
"""The parameters of one layer, weight first, then bias."""


class LayerGradients(ABC):
    """Gradients `g_1, ..., g_m` with respect to the parameters of one layer, which are numbered by `k`."""

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of gradients, m."""

    @property
    @abstractmethod
    def lead(self) -> torch.Size:
        """The sizes of the replica axes."""

    @property
    @abstractmethod
    def shapes(self) -> tuple[torch.Size, ...]:
        """The shape of each parameter."""

    @property
    @abstractmethod
    def like(self) -> Tensor:
        """One of the tensors held, for device and precision."""

    @abstractmethod
    def combine(self, c: Tensor) -> tuple[Tensor, ...]:
        """`sum_m c_m g_m`: `c [*lead, m]` gives `[*lead, *shape]` for each parameter."""

    @abstractmethod
    def rmatvec(self, x: Sequence[Tensor | None]) -> Tensor:
        """The inner product of each gradient with a vector, `[*lead, m]`; None for a parameter of which that has no part."""

    @abstractmethod
    def sum_squares(self) -> tuple[Tensor, ...]:
        """Sum the squared gradients, entry by entry: `[*lead, *shape]` for each parameter."""

    @abstractmethod
    def sum_absolute(self) -> tuple[Tensor, ...]:
        """Sum the gradients' absolute values, entry by entry: `[*lead, *shape]` for each parameter."""

    @abstractmethod
    def rows(self, k: int) -> Tensor:
        """Write the gradients of a parameter out: `[*lead, m, *shape]`."""

    @abstractmethod
    def slab(self, k: int, start: int, stop: int) -> Tensor:
        """Write some of their columns out, the parameter flattened: `[*lead, m, stop - start]`."""

    @abstractmethod
    def only(self, keep: Sequence[int]) -> "LayerGradients":
        """The gradients of some of the parameters, by their numbers, rising."""

    @abstractmethod
    def select(self, index: Tensor) -> "LayerGradients":
        """Keep some of the gradients, by their numbers."""

    @abstractmethod
    def append(self, other: "LayerGradients") -> "LayerGradients | None":
        """Return both sets as one, or None where the two do not go together."""

    def gram(self) -> Tensor | None:
        """The inner products of the gradients, `[*lead, m, m]`, where the form has a shortcut, else None."""
        return None


@node
@final
@dataclass(frozen=True, eq=False)
class LinearGradients(LayerGradients):
    """Gradients through a `Linear` layer: `sum_t d_t a_t^T` of the weight, kept as its two factors, and `sum_t d_t` of the bias.

    Args:
        a: inputs of the layer, `[*lead, m, t, i]`.
        d: signals at its output, `[*lead, m, t, o]`.
        bias: whether the layer has a bias.
        ones: what the bias was multiplied with where that is not 1 (once a Fisher has changed the gradient), `[*lead, m, t]`.
    """

    a: Tensor
    d: Tensor
    bias: bool
    ones: Tensor | None = None

    def __post_init__(self) -> None:
        if self.a.shape[:-1] != self.d.shape[:-1]:
            raise ValueError(
                f"Expected factors that agree but for the last axis, got {self.a.shape} and {self.d.shape}."
            )

    @property
    def count(self) -> int:
        return self.a.shape[-3]

    @property
    def lead(self) -> torch.Size:
        return self.a.shape[:-3]

    @property
    def shapes(self) -> tuple[torch.Size, ...]:
        o, i = self.d.shape[-1], self.a.shape[-1]
        return (torch.Size((o, i)), torch.Size((o,)))[: 1 + self.bias]

    @property
    def like(self) -> Tensor:
        return self.a

    @cached_property
    def positions(self) -> int:
        """How many rank-one terms make one gradient, t."""
        return self.a.shape[-2]

    @cached_property
    def _flat_a(self) -> Tensor:
        return self.a.flatten(-3, -2).contiguous()

    @cached_property
    def _flat_d(self) -> Tensor:
        return self.d.flatten(-3, -2).contiguous()

    @cached_property
    def _flat_ones(self) -> Tensor | None:
        return None if self.ones is None else self.ones.flatten(-2).unsqueeze(-1)

    def combine(self, c: Tensor) -> tuple[Tensor, ...]:
        if self.positions > 1:
            c = c.unsqueeze(-1).expand(*c.shape, self.positions).flatten(-2)
        scaled = self._flat_d * c.unsqueeze(-1)
        weight = scaled.mT @ self._flat_a
        if not self.bias:
            return (weight,)
        return weight, (scaled if self._flat_ones is None else scaled * self._flat_ones).sum(-2)

    def homogeneous(self) -> Tensor:
        """The inputs with what the bias is multiplied with as the last one: `[*lead, m, t, i + 1]`, or `a` without a bias."""
        if not self.bias:
            return self.a
        ones = self.a.new_ones(()).expand(self.a.shape[:-1]) if self.ones is None else self.ones
        return torch.cat([self.a, ones.unsqueeze(-1)], -1)

    def rmatvec(self, x: Sequence[Tensor | None]) -> Tensor:
        weight, bias, ones = x[0], x[1] if self.bias else None, self._flat_ones
        if weight is not None and weight.dim() == 3 and self._fusable(weight):
            return self._fused(weight, bias)
        if weight is None:
            answers = self._flat_d.new_zeros(()) if bias is None else bias.unsqueeze(-2)
            answers = answers if ones is None else answers * ones
        else:
            answers = self._flat_a @ weight.mT
            if bias is not None:
                answers += bias.unsqueeze(-2) if ones is None else bias.unsqueeze(-2) * ones
        # einsum would write this as a batched product of rows, which is slower than the plain sum
        products: Tensor = (answers * self._flat_d).sum(-1)
        return products.reshape(*products.shape[:-1], -1, self.positions).sum(-1) if self.positions > 1 else products

    def _fusable(self, weight: Tensor) -> bool:
        """Whether a product with a weight `[R, o, i]` is one for the fused kernel: replicas in one axis, rows that lie together."""
        if self.a.dim() != 4 or self.positions != 1 or not usable(self._flat_a, self._flat_d, weight):
            return False
        pays: Callable[..., bool] = kernel("factored.pays")
        return pays(self.a.shape[-1]) and weight.shape[0] == self.a.shape[0] and weight[0].is_contiguous()

    def _fused(self, weight: Tensor, bias: Tensor | None) -> Tensor:
        products: Callable[..., Tensor] = kernel("factored.products")
        found = products(self._flat_a, self._flat_d, weight)
        if bias is None:
            return found
        own = (self._flat_d @ bias.unsqueeze(-1)).squeeze(-1)
        return found + (own if self._flat_ones is None else own * self._flat_ones.squeeze(-1))

    def _weighted(self, rows: Tensor) -> Tensor:
        """Signals `[*lead, m t, o]` as they reach the bias."""
        return rows if self._flat_ones is None else rows * self._flat_ones

    def sum_squares(self) -> tuple[Tensor, ...]:
        if self.positions > 1:
            return tuple(self.rows(k).square().sum(len(self.lead)) for k in range(1 + self.bias))
        squares = self._flat_d.square()
        weight = squares.mT @ self._flat_a.square()
        return (weight, self._weighted(self._weighted(squares)).sum(-2)) if self.bias else (weight,)

    def sum_absolute(self) -> tuple[Tensor, ...]:
        if self.positions > 1:
            return tuple(self.rows(k).abs().sum(len(self.lead)) for k in range(1 + self.bias))
        weight = self._flat_d.abs().mT @ self._flat_a.abs()
        return (weight, self._weighted(self._flat_d).abs().sum(-2)) if self.bias else (weight,)

    def rows(self, k: int) -> Tensor:
        if k == 1:
            return (self.d if self.ones is None else self.d * self.ones.unsqueeze(-1)).sum(-2)
        return self.d.mT @ self.a if self.positions > 1 else self.d.mT * self.a

    def slab(self, k: int, start: int, stop: int) -> Tensor:
        if k == 1:
            return replace(self, d=self.d[..., start:stop]).rows(1)
        i = self.a.shape[-1]
        first, last = start // i, -(-stop // i)
        return replace(self, d=self.d[..., first:last]).rows(0).flatten(-2)[..., start - first * i : stop - first * i]

    def gram(self) -> Tensor | None:
        if self.positions > 1:
            return None
        rows = self.homogeneous().flatten(-3, -2)
        return (rows @ rows.mT) * (self._flat_d @ self._flat_d.mT)

    def only(self, keep: Sequence[int]) -> LayerGradients:
        if len(keep) == 1 + self.bias:
            return self
        if list(keep) == [0]:
            return LinearGradients(self.a, self.d, bias=False)
        return DenseGradients((self.rows(1),), len(self.lead))

    def select(self, index: Tensor) -> "LinearGradients":
        index = index.to(self.a.device)
        ones = None if self.ones is None else self.ones.index_select(-2, index)
        return LinearGradients(self.a.index_select(-3, index), self.d.index_select(-3, index), self.bias, ones)

    def append(self, other: LayerGradients) -> "LinearGradients | None":
        if not isinstance(other, LinearGradients) or (other.positions, other.bias) != (self.positions, self.bias):
            return None
        if (self.ones is None) != (other.ones is None):
            return None
        ones = None if self.ones is None or other.ones is None else torch.cat([self.ones, other.ones], -2)
        return LinearGradients(torch.cat([self.a, other.a], -3), torch.cat([self.d, other.d], -3), self.bias, ones)


@node
@final
@dataclass(frozen=True, eq=False)
class DenseGradients(LayerGradients):
    """Gradients written out: for layers whose factors would be larger.

    Args:
        parts: `[*lead, m, *shape]` for each parameter.
        axes: how many leading axes number replicas.
    """

    parts: tuple[Tensor, ...]
    axes: int = 0

    @property
    def count(self) -> int:
        return self.parts[0].shape[self.axes]

    @property
    def lead(self) -> torch.Size:
        return self.parts[0].shape[: self.axes]

    @property
    def shapes(self) -> tuple[torch.Size, ...]:
        return tuple(part.shape[self.axes + 1 :] for part in self.parts)

    @property
    def like(self) -> Tensor:
        return self.parts[0]

    @cached_property
    def _flat(self) -> list[tuple[Tensor, torch.Size]]:
        """Each part as `[*lead, m, q]`, with the parameter's shape."""
        pairs = zip(self.parts, self.shapes, strict=True)
        return [(part.reshape(*part.shape[: self.axes + 1], shape.numel()), shape) for part, shape in pairs]

    def combine(self, c: Tensor) -> tuple[Tensor, ...]:
        found = []
        for flat, shape in self._flat:
            sums = (c.unsqueeze(-2) @ flat).squeeze(-2)
            found.append(sums.view((*sums.shape[:-1], *shape)))
        return tuple(found)

    def rmatvec(self, x: Sequence[Tensor | None]) -> Tensor:
        found = []
        for (flat, shape), part in zip(self._flat, x, strict=True):
            if part is not None:
                column = part.reshape(*part.shape[: part.dim() - len(shape)], shape.numel(), 1)
                found.append((flat @ column).squeeze(-1))
        return reduce(torch.add, found) if found else self.like.new_zeros(*self.lead, self.count)

    def sum_squares(self) -> tuple[Tensor, ...]:
        return tuple(part.square().sum(self.axes) for part in self.parts)

    def sum_absolute(self) -> tuple[Tensor, ...]:
        return tuple(part.abs().sum(self.axes) for part in self.parts)

    def rows(self, k: int) -> Tensor:
        return self.parts[k]

    def slab(self, k: int, start: int, stop: int) -> Tensor:
        return self._flat[k][0][..., start:stop]

    def only(self, keep: Sequence[int]) -> "DenseGradients":
        return DenseGradients(tuple(self.parts[k] for k in keep), self.axes)

    def select(self, index: Tensor) -> "DenseGradients":
        index = index.to(self.like.device)
        return DenseGradients(tuple(part.index_select(self.axes, index) for part in self.parts), self.axes)

    def append(self, other: LayerGradients) -> "DenseGradients | None":
        if not isinstance(other, DenseGradients):
            return None
        pairs = zip(self.parts, other.parts, strict=True)
        return DenseGradients(tuple(torch.cat(pair, self.axes) for pair in pairs), self.axes)


@node
@final
@dataclass(frozen=True, eq=False)
class SampleGradients:
    """The gradients of n samples: those of each layer that the batch reached, zero elsewhere.

    Args:
        layers: gradients by the names of the parameters that they belong to.
        count: n.
    """

    layers: Mapping[Names, LayerGradients]
    count: int

    @property
    def lead(self) -> torch.Size:
        """The sizes of the replica axes; there must be a layer."""
        return next(iter(self.layers.values())).lead

    def rows(self) -> Vector:
        """Write every gradient out: `[*lead, n, *shape]` for each parameter, the samples as one more replica axis."""
        parts = {name: own.rows(k) for names, own in self.layers.items() for k, name in enumerate(names)}
        return Vector(parts, len(self.lead) + 1)

    def add_squares(self, total: dict[str, Tensor]) -> None:
        """Add the sum of the squared gradients to a total by name, `[*lead, *shape]`; a name that is not there starts at zero."""
        for names, own in self.layers.items():
            _add(total, names, own.sum_squares())

    def add_absolute(self, total: dict[str, Tensor]) -> None:
        """Add the sum of the gradients' absolute values to such a total."""
        for names, own in self.layers.items():
            _add(total, names, own.sum_absolute())


def _add(total: dict[str, Tensor], names: Names, found: Sequence[Tensor]) -> None:
    for name, part in zip(names, found, strict=True):
        total[name] = total[name] + part if name in total else part
