"""The Fishers that methods may use as their metric: what is kept of one, and what is made of it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal, Protocol, TypeAlias, final

import torch
import torch.nn.functional as F
from torch import Tensor

from fopng.core.likelihood import Labels, Signals
from fopng.core.tree import node
from fopng.core.vector import Vector
from fopng.curvature.kfac import EigenCorrected, Kronecker, kronecker_matvec, kronecker_times
from fopng.curvature.kronecker import KroneckerOperator, LayerBasis
from fopng.curvature.low_rank import LowRankPlusDiagonal, averaged, low_rank_product
from fopng.curvature.metric import Diagonal, Full, Metric, matrix_vector, split
from fopng.curvature.moments import Moments, mean, moment_numbers
from fopng.gradients.directions import Basis, ScaledBasis, StoredGradients, TransformedBasis, each_row
from fopng.gradients.layers import DenseGradients, LayerGradients, Names, SampleGradients

FisherName: TypeAlias = Literal["diagonal", "kfac", "ekfac", "low-rank", "full"]
"""How a Fisher is approximated: its diagonal, a Kronecker product for each layer, that with corrected eigenvalues, its leading
directions and a diagonal, or not at all."""


class FisherSource(Protocol):
    """Data that a Fisher can be estimated on."""

    def fisher(self, labels: Labels, samples: int | None) -> Vector:
        """Its diagonal."""
        ...

    def moments(self, signals: Signals, samples: int | None) -> Moments:
        """Both second moments of each layer, and a diagonal for everything else."""
        ...

    def squares_along(
        self, bases: Mapping[Names, LayerBasis], labels: Labels, samples: int | None
    ) -> dict[Names, Tensor]:
        """Mean squared gradients along the eigenvectors of each layer, `[*lead, o, i]`."""
        ...

    def full_fisher(self, labels: Labels, samples: int | None) -> tuple[Tensor, dict[str, torch.Size]]:
        """The whole matrix, `[*lead, p, p]`, and the parameters in its order."""
        ...

    def low_rank_fisher(self, labels: Labels, samples: int | None, rank: int) -> tuple[Vector, Vector]:
        """A diagonal and the leading rows, `[*lead, rank, *shape]`."""
        ...


class Fisher(ABC):
    """An estimated Fisher, as it is kept."""

    @final
    def metric(self, damping: float) -> Metric:
        """`F + damping I`; factorised once."""
        if not self._made or self._made[0][0] is not damping:
            self._made[:] = [(damping, self.make_metric(damping))]
        return self._made[0][1]

    @cached_property
    def _made(self) -> list[tuple[float, Metric]]:
        return []

    @abstractmethod
    def make_metric(self, damping: float) -> Metric:
        """`F + damping I`, anew."""

    @abstractmethod
    def times(self, stored: StoredGradients) -> Basis:
        """`F G`."""

    @abstractmethod
    def times_gradients(self, gradients: SampleGradients) -> SampleGradients:
        """`F G` of gradients that are about to be stored."""

    @abstractmethod
    def averaged(self, new: "Fisher", weight: float) -> "Fisher":
        """`(1 - weight) self + weight new`, for another one of the same kind; what only one of them has is zero in the other."""

    def kept(self) -> "Fisher":
        """What is kept of a task's Fisher once the task is over."""
        return self


@node
@final
@dataclass(frozen=True, eq=False)
class DiagonalFisher(Fisher):
    """The diagonal: the paper's.

    Args:
        values: that.
    """

    values: Vector

    def make_metric(self, damping: float) -> Metric:
        return Diagonal(self.values, damping=damping)

    def times(self, stored: StoredGradients) -> Basis:
        return ScaledBasis(stored, self.values)

    def times_gradients(self, gradients: SampleGradients) -> SampleGradients:
        layers = {names: _scaled(self.values, names, own) for names, own in gradients.layers.items()}
        return replace(gradients, layers=layers)

    def averaged(self, new: Fisher, weight: float) -> Fisher:
        assert isinstance(new, DiagonalFisher)
        return DiagonalFisher(self.values.lerp(new.values, weight))


class _Factored(Fisher):
    """Kronecker products: `F G` has factors where `G` has."""

    moments: Moments

    def times(self, stored: StoredGradients) -> Basis:
        inside = {name for names in self.moments.layers for name in names}
        if all(names in self.moments.layers or inside.isdisjoint(names) for names in stored.layers):
            return stored.mapped(self._times_layer)
        # stored by parameters, not by layers: there are no factors to keep
        return TransformedBasis(stored, self._matvec)

    def _matvec(self, v: Vector) -> Vector:
        outside = v.only(self.moments.rest.parts) * self.moments.rest
        return Vector({**outside.parts, **kronecker_matvec(self.moments.layers, v)}, v.lead)

    def _times_layer(self, names: Names, own: LayerGradients) -> LayerGradients:
        moments = self.moments.layers.get(names)
        return _scaled(self.moments.rest, names, own) if moments is None else kronecker_times(moments, own)

    def times_gradients(self, gradients: SampleGradients) -> SampleGradients:
        layers = {names: self._times_layer(names, own) for names, own in gradients.layers.items()}
        return replace(gradients, layers=layers)


@node
@final
@dataclass(frozen=True, eq=False)
class KFACFisher(_Factored):
    """KFAC: two moments of each layer, and a diagonal for everything else.

    Args:
        moments: those.
    """

    moments: Moments

    def make_metric(self, damping: float) -> Metric:
        return Kronecker(self.moments.layers, self.moments.rest, damping=damping)

    def averaged(self, new: Fisher, weight: float) -> Fisher:
        assert isinstance(new, KFACFisher)
        return KFACFisher(self.moments.averaged(new.moments, weight))


@node
@final
@dataclass(frozen=True, eq=False)
class EKFACFisher(_Factored):
    """EKFAC: beside the two moments, their eigenvectors, with the second moments of the gradients along them.

    Args:
        moments: of each layer, and a diagonal for everything else.
        bases: by layer; their eigenvalues are those second moments.
    """

    moments: Moments
    bases: dict[Names, LayerBasis]

    def make_metric(self, damping: float) -> Metric:
        return EigenCorrected(KroneckerOperator(self.bases, self.moments.rest), damping=damping)

    def averaged(self, new: Fisher, weight: float) -> Fisher:
        # tasks have eigenvectors of their own, which cannot be averaged; their moments can
        return self.kept().averaged(new.kept(), weight)

    def kept(self) -> Fisher:
        return KFACFisher(self.moments)


@node
@final
@dataclass(frozen=True, eq=False)
class LowRankFisher(Fisher):
    """Low rank plus diagonal: the leading directions whole, the rest by its diagonal.

    Args:
        diagonal: d.
        rows: `U [*lead, rank, *shape]`.
    """

    diagonal: Vector
    rows: Vector

    def make_metric(self, damping: float) -> Metric:
        return LowRankPlusDiagonal(self.diagonal, self.rows, damping=damping)

    def times(self, stored: StoredGradients) -> Basis:
        return TransformedBasis(stored, partial(low_rank_product, self.diagonal, self.rows))

    def times_gradients(self, gradients: SampleGradients) -> SampleGradients:
        return _one_block(each_row(partial(low_rank_product, self.diagonal, self.rows), gradients.rows()))

    def averaged(self, new: Fisher, weight: float) -> Fisher:
        assert isinstance(new, LowRankFisher)
        return LowRankFisher(*averaged((self.diagonal, self.rows), (new.diagonal, new.rows), weight))


@node
@final
@dataclass(frozen=True, eq=False)
class FullFisher(Fisher):
    """The whole Fisher, for small models.

    Args:
        matrix: `[*lead, p, p]`.
        shapes: the parameters, in the order of its rows.
    """

    matrix: Tensor
    shapes: dict[str, torch.Size]

    def make_metric(self, damping: float) -> Metric:
        return Full(self.matrix, self.shapes, damping=damping)

    def times(self, stored: StoredGradients) -> Basis:
        return TransformedBasis(stored, partial(matrix_vector, self.matrix, self.shapes))

    def times_gradients(self, gradients: SampleGradients) -> SampleGradients:
        rows = gradients.rows().only(self.shapes).filled(self.shapes).flat()
        return _one_block(split(rows @ self.matrix, self.shapes))

    def averaged(self, new: Fisher, weight: float) -> Fisher:
        assert isinstance(new, FullFisher)
        return replace(new, matrix=mean(self.resized(new.shapes).matrix, new.matrix, weight))

    def resized(self, shapes: Mapping[str, torch.Size]) -> "FullFisher":
        """The same for a model that has more parameters, or more rows of some: it is zero there."""
        if list(map(tuple, self.shapes.values())) == list(map(tuple, shapes.values())) and [*self.shapes] == [*shapes]:
            return self
        # the rows first, then the columns
        wide = _spread(self.matrix, self.shapes, shapes)
        return FullFisher(_spread(wide.mT, self.shapes, shapes).mT.contiguous(), dict(shapes))


def _spread(matrix: Tensor, old: Mapping[str, torch.Size], new: Mapping[str, torch.Size]) -> Tensor:
    """The columns of a matrix `[..., p]` where other shapes have them, zero elsewhere."""
    parts = split(matrix.contiguous(), old)
    padded = {name: _padded(part, torch.Size(new[name])) for name, part in parts.parts.items()}
    return Vector(padded, parts.lead).filled(new).flat()


def _padded(part: Tensor, shape: torch.Size) -> Tensor:
    missing = [after - before for before, after in zip(part.shape[part.dim() - len(shape) :], shape, strict=True)]
    return F.pad(part, [edge for more in reversed(missing) for edge in (0, more)])


def _scaled(values: Vector, names: Names, own: LayerGradients) -> LayerGradients:
    """Gradients of a layer times a diagonal."""
    axis = len(own.lead)
    rows = [
        own.rows(k) * values[name].unsqueeze(axis) if name in values else torch.zeros_like(own.rows(k))
        for k, name in enumerate(names)
    ]
    return DenseGradients(tuple(rows), axis)


def _one_block(rows: Vector) -> SampleGradients:
    """Gradients that a Fisher has tied together: one block of all parameters."""
    own = DenseGradients(tuple(rows.parts.values()), rows.lead - 1)
    return SampleGradients({rows.names: own}, own.count)


def estimate_fisher(name: FisherName, rank: int, task: FisherSource, labels: Labels, samples: int | None) -> Fisher:
    """Estimate the Fisher of a task.

    Args:
        name: how it is approximated.
        rank: how many directions are kept where it is of low rank plus diagonal.
        task: the data.
        labels: which labels it uses.
        samples: how many samples; None for all.
    """
    if name == "diagonal":
        return DiagonalFisher(task.fisher(labels, samples))
    if name == "full":
        return FullFisher(*task.full_fisher(labels, samples))
    if name == "low-rank":
        return LowRankFisher(*task.low_rank_fisher(labels, samples, rank))
    moments = task.moments(labels, samples)
    if name == "kfac":
        return KFACFisher(moments)
    bases = {names: LayerBasis.of(own, bias=len(names) > 1) for names, own in moments.layers.items()}
    squares = task.squares_along(bases, labels, samples)
    return EKFACFisher(moments, {n: replace(own, values=squares.get(n, own.values)) for n, own in bases.items()})


def planned_numbers(name: FisherName, rank: int, shapes: Mapping[str, torch.Size]) -> int:
    """About how many numbers a Fisher has beside its diagonal while it is worked out, for planning."""
    size = sum(shape.numel() for shape in shapes.values())
    if name in ("kfac", "ekfac"):
        return 8 * moment_numbers(shapes)
    return {"diagonal": 0, "full": 6 * size**2, "low-rank": 8 * rank * size}[name]
