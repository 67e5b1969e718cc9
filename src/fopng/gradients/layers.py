"""Per-sample gradients of one layer, kept as exact factors where that is smaller.

Axes: `...` replicas, `m` stored gradient, `t` position, `o` output, `i` input, `q` the layer's parameters.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from fopng.core.kernels import kernel, usable
from fopng.core.layout import ParamLayout


class LayerGradients(ABC):
    """A matrix `G^T [..., m, q]`: m gradients with respect to the q parameters of one layer."""

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of gradients, m."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of parameters, q."""

    @property
    @abstractmethod
    def lead(self) -> torch.Size:
        """The replica axes."""

    @abstractmethod
    def combine(self, c: Tensor, out: Tensor) -> None:
        """Write `G c = sum_m c_m g_m` into a place of its own, `[..., m] -> [..., q]`; the place may be a part of a larger one."""

    @final
    def matvec(self, c: Tensor) -> Tensor:
        """Combine the gradients, `G c = sum_m c_m g_m`: `[..., m] -> [..., q]`."""
        out = c.new_empty(*torch.broadcast_shapes(c.shape[:-1], self.lead), self.size)
        self.combine(c, out)
        return out

    @abstractmethod
    def rmatvec(self, x: Tensor) -> Tensor:
        """Multiply each gradient with a vector, `G^T x`: `[..., q] -> [..., m]`."""

    @abstractmethod
    def sum_squares(self) -> Tensor:
        """Sum the squared gradients, entry by entry: `[..., q]`."""

    @abstractmethod
    def sum_absolute(self) -> Tensor:
        """Sum the gradients' absolute values, entry by entry: `[..., q]`."""

    @abstractmethod
    def slab(self, start: int, stop: int) -> Tensor:
        """Write the columns `start:stop` out: dense `[..., m, stop - start]`."""

    @abstractmethod
    def select(self, rows: Tensor) -> "LayerGradients":
        """Keep some of the gradients, by their numbers."""

    @abstractmethod
    def append(self, other: "LayerGradients") -> "LayerGradients | None":
        """Return both sets as one, or None where the two do not go together."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """The tensors that hold the gradients, by name."""

    def gram(self) -> Tensor | None:
        """`G^T G [..., m, m]` where the form has a shortcut, else None."""
        return None

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(t.numel() * t.element_size() for t in self.tensors().values())


@final
class LinearGradients(LayerGradients):
    """Gradients through a `Linear` layer: `sum_t d_t a_t^T`, kept as its two factors.

    Args:
        a: inputs of the layer, `[..., m, t, i]`.
        d: signals at its output, `[..., m, t, o]`.
        bias: whether the layer's bias, whose gradient is `sum_t d_t`, follows its weight.
        ones: what the bias was multiplied with where that is not 1 (once a Fisher has changed the gradient), `[..., m, t]`.
    """

    def __init__(self, a: Tensor, d: Tensor, *, bias: bool, ones: Tensor | None = None) -> None:
        if a.shape[:-1] != d.shape[:-1]:
            raise ValueError(f"Expected factors that agree but for the last axis, got {a.shape} and {d.shape}.")
        self.a, self.d, self.bias, self.ones = a, d, bias, ones
        self._flat_a, self._flat_d = a.flatten(-3, -2).contiguous(), d.flatten(-3, -2).contiguous()

    @property
    def count(self) -> int:
        return self.a.shape[-3]

    @property
    def lead(self) -> torch.Size:
        return self.a.shape[:-3]

    @property
    def positions(self) -> int:
        """How many rank-one terms make one gradient, t."""
        return self.a.shape[-2]

    @property
    def _weights(self) -> int:
        return self.d.shape[-1] * self.a.shape[-1]

    @property
    def size(self) -> int:
        return self._weights + (self.d.shape[-1] if self.bias else 0)

    def combine(self, c: Tensor, out: Tensor) -> None:
        if self.positions > 1:
            c = c.unsqueeze(-1).expand(*c.shape, self.positions).flatten(-2)
        scaled = self._flat_d * c.unsqueeze(-1)
        place = self._matrix(out)
        if place.dim() == 2:
            torch.mm(scaled.mT, self._flat_a, out=place)
        elif place.dim() == 3 == self._flat_a.dim():
            torch.bmm(scaled.mT, self._flat_a, out=place)
        else:
            place.copy_(scaled.mT @ self._flat_a)
        if self.bias:
            torch.sum(self._weighted(scaled), -2, out=out[..., self._weights :])

    def _weighted(self, rows: Tensor) -> Tensor:
        """Signals `[..., m t, o]` as they reach the bias."""
        return rows if self.ones is None else rows * self.ones.flatten(-2).unsqueeze(-1)

    def homogeneous(self) -> Tensor:
        """The inputs with what the bias is multiplied with as the last one: `[..., m, t, i + 1]`, or `a` without a bias."""
        if not self.bias:
            return self.a
        ones = self.a.new_ones(()).expand(self.a.shape[:-1]) if self.ones is None else self.ones
        return torch.cat([self.a, ones.unsqueeze(-1)], -1)

    def _matrix(self, x: Tensor) -> Tensor:
        """The weight's part of a vector `[..., q]`, as a matrix `[..., o, i]`."""
        return x[..., : self._weights].view(*x.shape[:-1], self.d.shape[-1], self.a.shape[-1])

    def _fusable(self, x: Tensor) -> bool:
        """Whether a product with a vector is one for the fused kernel: replicas in one axis, rows that lie together."""
        if len(self.lead) != 1 or self.positions != 1 or not usable(self._flat_a, self._flat_d, x):
            return False
        pays: Callable[..., bool] = kernel("factored.pays")
        return pays(self.a.shape[-1]) and x.dim() == 2 and x.shape[0] == self.lead[0] and x.stride(1) == 1

    def rmatvec(self, x: Tensor) -> Tensor:
        if self._fusable(x):
            seen: Callable[..., Tensor] = kernel("factored.seen")
            return seen(self._flat_a, self._flat_d, x, bias=self.bias)
        answers = self._flat_a @ self._matrix(x).mT
        if self.bias:
            own = x[..., None, self._weights :]
            answers += own if self.ones is None else own * self.ones.flatten(-2).unsqueeze(-1)
        # einsum would write this as a batched product of rows, which is slower than the plain sum
        products: Tensor = (answers * self._flat_d).sum(-1)
        return products.reshape(*products.shape[:-1], -1, self.positions).sum(-1) if self.positions > 1 else products

    def sum_squares(self) -> Tensor:
        if self.positions > 1:
            return self.slab(0, self.size).square().sum(-2)
        squares = self._flat_d.square()
        weight = (squares.mT @ self._flat_a.square()).flatten(-2)
        return torch.cat([weight, self._weighted(self._weighted(squares)).sum(-2)], -1) if self.bias else weight

    def sum_absolute(self) -> Tensor:
        if self.positions > 1:
            return self.slab(0, self.size).abs().sum(-2)
        sizes = self._flat_d.abs()
        weight = (sizes.mT @ self._flat_a.abs()).flatten(-2)
        return torch.cat([weight, sizes.sum(-2)], -1) if self.bias else weight

    def slab(self, start: int, stop: int) -> Tensor:
        i, weights = self.a.shape[-1], self._weights
        pieces = []
        if start < weights:
            first, last = start // i, -(-min(stop, weights) // i)
            d = self.d[..., first:last]
            outer = d.mT @ self.a if self.positions > 1 else d.squeeze(-2).unsqueeze(-1) * self.a
            pieces.append(outer.flatten(-2)[..., start - first * i : min(stop, weights) - first * i])
        if stop > weights:
            own = self.d[..., max(start - weights, 0) : stop - weights]
            pieces.append((own if self.ones is None else own * self.ones.unsqueeze(-1)).sum(-2))
        return torch.cat(pieces, -1) if len(pieces) > 1 else pieces[0]

    def gram(self) -> Tensor | None:
        if self.positions > 1:
            return None
        rows = self.homogeneous().flatten(-3, -2)
        return (rows @ rows.mT) * (self._flat_d @ self._flat_d.mT)

    def select(self, rows: Tensor) -> "LinearGradients":
        rows = rows.to(self.a.device)
        ones = None if self.ones is None else self.ones.index_select(-2, rows)
        return LinearGradients(self.a.index_select(-3, rows), self.d.index_select(-3, rows), bias=self.bias, ones=ones)

    def append(self, other: LayerGradients) -> "LinearGradients | None":
        if not isinstance(other, LinearGradients) or (other.positions, other.bias) != (self.positions, self.bias):
            return None
        if (self.ones is None) != (other.ones is None):
            return None
        ones = None if self.ones is None or other.ones is None else torch.cat([self.ones, other.ones], -2)
        a, d = torch.cat([self.a, other.a], -3), torch.cat([self.d, other.d], -3)
        return LinearGradients(a, d, bias=self.bias, ones=ones)

    def tensors(self) -> dict[str, Tensor]:
        return {"a": self.a, "d": self.d} | ({} if self.ones is None else {"ones": self.ones})


@final
class DenseGradients(LayerGradients):
    """Gradients written out, `g [..., m, q]`: for layers whose factors would be larger."""

    def __init__(self, g: Tensor) -> None:
        self.g = g

    @property
    def count(self) -> int:
        return self.g.shape[-2]

    @property
    def lead(self) -> torch.Size:
        return self.g.shape[:-2]

    @property
    def size(self) -> int:
        return self.g.shape[-1]

    def combine(self, c: Tensor, out: Tensor) -> None:
        out.copy_((c.unsqueeze(-2) @ self.g).squeeze(-2))

    def rmatvec(self, x: Tensor) -> Tensor:
        return (self.g @ x.unsqueeze(-1)).squeeze(-1)

    def sum_squares(self) -> Tensor:
        return self.g.square().sum(-2)

    def sum_absolute(self) -> Tensor:
        return self.g.abs().sum(-2)

    def slab(self, start: int, stop: int) -> Tensor:
        return self.g[..., start:stop]

    def select(self, rows: Tensor) -> "DenseGradients":
        return DenseGradients(self.g.index_select(-2, rows.to(self.g.device)))

    def append(self, other: LayerGradients) -> "DenseGradients | None":
        if not isinstance(other, DenseGradients):
            return None
        return DenseGradients(torch.cat([self.g, other.g], -2))

    def tensors(self) -> dict[str, Tensor]:
        return {"g": self.g}


def layer_gradients(tensors: dict[str, Tensor], *, size: int) -> LayerGradients:
    """Rebuild a layer's gradients from `tensors()`; `size` is the number of its parameters."""
    if set(tensors) == {"g"}:
        return DenseGradients(tensors["g"])
    if {"a", "d"} <= set(tensors) <= {"a", "d", "ones"}:
        a, d = tensors["a"], tensors["d"]
        return LinearGradients(a, d, bias=size > a.shape[-1] * d.shape[-1], ones=tensors.get("ones"))
    raise ValueError(f"Expected the tensors 'g', or 'a' and 'd', got {sorted(tensors)}.")


@dataclass(frozen=True)
class SampleGradients:
    """The gradients of n samples: a block for each layer that the batch reached, zero elsewhere.

    Args:
        layout: the flat order.
        layers: gradients by the names of the (neighbouring) parameters that they belong to.
        count: n.
        rows: which of the samples of all processes these are, where several share them.
    """

    layout: ParamLayout
    layers: Mapping[tuple[str, ...], LayerGradients]
    count: int
    rows: Sequence[int] = ()

    def dense(self) -> Tensor:
        """Write every gradient out: `[..., n, p]`."""
        some = next(iter(self.layers.values()))
        out = next(iter(some.tensors().values())).new_zeros(*some.lead, self.count, self.layout.size)
        for names, layer in self.layers.items():
            out[..., self.layout.span(names)] = layer.slab(0, layer.size)
        return out

    def cleared(self, kept: Tensor) -> "SampleGradients":
        """Zero in the replicas that are not kept, `[...]`, whatever they hold."""
        layers = {}
        for names, layer in self.layers.items():
            held = layer.tensors()
            zeroed = {
                key: torch.where(kept.reshape(*kept.shape, *[1] * (t.dim() - kept.dim())), t, 0)
                for key, t in held.items()
            }
            layers[names] = layer_gradients(zeroed, size=layer.size)
        return replace(self, layers=layers)

    def add_squares(self, total: Tensor) -> None:
        """Add the sum of the squared gradients to `total [..., p]`."""
        for names, layer in self.layers.items():
            total[..., self.layout.span(names)] += layer.sum_squares()

    def add_absolute(self, total: Tensor) -> None:
        """Add the sum of the gradients' absolute values to `total [..., p]`."""
        for names, layer in self.layers.items():
            total[..., self.layout.span(names)] += layer.sum_absolute()
