"""The Fishers that methods may use as their metric: what is kept of one, and what is made of it."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal, Protocol, TypeAlias, final

import torch
from torch import Tensor

from fopng.core.layout import ParamLayout
from fopng.core.likelihood import Labels, Signals
from fopng.curvature.kfac import EigenCorrected, Kronecker, kronecker_matvec, kronecker_times
from fopng.curvature.kronecker import KroneckerFisher, LayerBasis, across
from fopng.curvature.low_rank import LowRankPlusDiagonal, averaged, product
from fopng.curvature.metric import Diagonal, Full, Metric
from fopng.curvature.moments import LayerMoments, Moments, matrix_key, moment_numbers
from fopng.gradients.backward import Names
from fopng.gradients.directions import Basis, ChangedBasis, ScaledBasis
from fopng.gradients.layers import DenseGradients, LayerGradients, SampleGradients
from fopng.gradients.stored import StoredGradients

FisherName: TypeAlias = Literal["diagonal", "kfac", "ekfac", "low-rank", "full"]
"""How a Fisher is approximated: its diagonal, a Kronecker product a layer, that with corrected eigenvalues, its leading directions
and a diagonal, or not at all."""


@final
@dataclass(frozen=True)
class Estimate:
    """A Fisher as it is kept.

    Args:
        vector: a diagonal, `[..., p]`.
        matrices: the rest, by names of their own.
    """

    vector: Tensor
    matrices: Mapping[str, Tensor]


class FisherSource(Protocol):
    """Data that a Fisher can be estimated on."""

    def fisher(self, labels: Labels, samples: int | None) -> Tensor:
        """Its diagonal, `[..., p]`."""
        ...

    def moments(self, signals: Signals, samples: int | None) -> Moments:
        """Both second moments of each layer, and a diagonal for everything else."""
        ...

    def turned_squares(
        self, bases: Mapping[Names, LayerBasis], labels: Labels, samples: int | None
    ) -> dict[Names, Tensor]:
        """Mean squared gradients along the eigenvectors of each layer, `[..., o, i]`."""
        ...

    def full_fisher(self, labels: Labels, samples: int | None) -> Tensor:
        """All of it, `[..., p, p]`."""
        ...

    def low_rank_fisher(self, labels: Labels, samples: int | None, rank: int) -> tuple[Tensor, Tensor]:
        """A diagonal `[..., p]` and the leading rows `[..., rank, p]`."""
        ...


class FisherKind(ABC):
    """One way to approximate a Fisher."""

    layerwise: ClassVar[bool] = True
    """Whether layers have nothing to do with one another."""

    @abstractmethod
    def estimate(self, task: FisherSource, labels: Labels, samples: int | None) -> Estimate:
        """The Fisher of the task at hand."""

    @abstractmethod
    def metric(self, layout: ParamLayout, fisher: Estimate, damping: float | Tensor) -> Metric:
        """`F + damping I`."""

    @abstractmethod
    def basis(self, fisher: Estimate, stored: StoredGradients) -> Basis:
        """`F G`."""

    @abstractmethod
    def times(self, fisher: Estimate, gradients: SampleGradients) -> SampleGradients:
        """`F G` of gradients that are about to be stored."""

    def numbers(self, layout: ParamLayout) -> int:
        """About how many numbers its matrices have while they are worked out, for planning."""
        return 0

    def kept(self, fisher: Estimate) -> Estimate:
        """What is kept of a task's Fisher once the task is over."""
        return fisher

    def carried(self, matrices: Mapping[str, Tensor], layout: ParamLayout, old: ParamLayout) -> Mapping[str, Tensor]:
        """What a Fisher keeps beside its diagonal, for a model that has got more parameters: it knows nothing about those."""
        return matrices

    def average(self, old: Estimate, new: Estimate, weight: float | Tensor) -> Estimate:
        """`(1 - weight) old + weight new`, entry by entry; what only one of them has counts as zero in the other."""
        share = across(weight, new.vector)
        matrices = {}
        for key in {**old.matrices, **new.matrices}:
            some = old.matrices.get(key, new.matrices.get(key))
            assert some is not None
            nothing = torch.zeros_like(some)
            own = across(weight, some)
            matrices[key] = (1 - own) * old.matrices.get(key, nothing) + own * new.matrices.get(key, nothing)
        return Estimate((1 - share) * old.vector + share * new.vector, matrices)


@final
class DiagonalKind(FisherKind):
    """The diagonal: the paper's."""

    def estimate(self, task: FisherSource, labels: Labels, samples: int | None) -> Estimate:
        return Estimate(task.fisher(labels, samples), {})

    def metric(self, layout: ParamLayout, fisher: Estimate, damping: float | Tensor) -> Metric:
        return Diagonal(fisher.vector, damping=damping)

    def basis(self, fisher: Estimate, stored: StoredGradients) -> Basis:
        return ScaledBasis(stored, fisher.vector)

    def times(self, fisher: Estimate, gradients: SampleGradients) -> SampleGradients:
        layers = {
            names: DenseGradients(own.slab(0, own.size) * fisher.vector[..., None, gradients.layout.span(names)])
            for names, own in gradients.layers.items()
        }
        return replace(gradients, layers=layers)


class _Factored(FisherKind):
    """Kronecker products: `F G` has factors where `G` has."""

    def numbers(self, layout: ParamLayout) -> int:
        return 8 * moment_numbers(layout)

    def basis(self, fisher: Estimate, stored: StoredGradients) -> Basis:
        layers = unpack(fisher.matrices)
        inside = {name for names in layers for name in names}
        if all(names in layers or inside.isdisjoint(names) for names in stored.layers):
            return stored.mapped(lambda names, own: _times(fisher, stored.layout, names, own))
        # stored by parameters, not by layers: there are no factors to keep
        return ChangedBasis(stored, lambda v: kronecker_matvec(stored.layout, layers, fisher.vector, v))

    def times(self, fisher: Estimate, gradients: SampleGradients) -> SampleGradients:
        layers = {names: _times(fisher, gradients.layout, names, own) for names, own in gradients.layers.items()}
        return replace(gradients, layers=layers)


@final
class KFACKind(_Factored):
    """KFAC: two moments a layer."""

    def estimate(self, task: FisherSource, labels: Labels, samples: int | None) -> Estimate:
        moments = task.moments(labels, samples)
        return Estimate(moments.rest, pack(moments.layers))

    def metric(self, layout: ParamLayout, fisher: Estimate, damping: float | Tensor) -> Metric:
        return Kronecker(layout, unpack(fisher.matrices), fisher.vector, damping=damping)


@final
class EKFACKind(_Factored):
    """EKFAC: beside the two moments, the eigenvectors and the second moments along them."""

    def estimate(self, task: FisherSource, labels: Labels, samples: int | None) -> Estimate:
        moments = task.moments(labels, samples)
        bases = {names: LayerBasis.of(own, bias=len(names) > 1) for names, own in moments.layers.items()}
        squares = task.turned_squares(bases, labels, samples)
        vectors = {names: LayerMoments(own.inputs, own.signals) for names, own in bases.items()}
        values = {matrix_key("squares", names): own for names, own in squares.items()}
        return Estimate(moments.rest, pack(moments.layers) | pack(vectors, "vectors of ") | values)

    def kept(self, fisher: Estimate) -> Estimate:
        # tasks have eigenvectors of their own, which cannot be averaged; their moments can
        return Estimate(fisher.vector, pack(unpack(fisher.matrices)))

    def metric(self, layout: ParamLayout, fisher: Estimate, damping: float | Tensor) -> Metric:
        layers = {
            names: LayerBasis(
                own.inputs, own.signals, fisher.matrices[matrix_key("squares", names)], None, bias=len(names) > 1
            )
            for names, own in unpack(fisher.matrices, "vectors of ").items()
        }
        return EigenCorrected(KroneckerFisher(layout, layers, fisher.vector), damping=damping)


@final
class FullKind(FisherKind):
    """The whole Fisher, for small models."""

    layerwise: ClassVar[bool] = False

    def numbers(self, layout: ParamLayout) -> int:
        return 6 * layout.size**2

    def estimate(self, task: FisherSource, labels: Labels, samples: int | None) -> Estimate:
        matrix = task.full_fisher(labels, samples)
        return Estimate(matrix.diagonal(dim1=-2, dim2=-1).clone(), {"full": matrix})

    def metric(self, layout: ParamLayout, fisher: Estimate, damping: float | Tensor) -> Metric:
        return Full(fisher.matrices["full"], damping=damping)

    def basis(self, fisher: Estimate, stored: StoredGradients) -> Basis:
        matrix = fisher.matrices["full"]
        return ChangedBasis(stored, lambda v: (matrix @ v.unsqueeze(-1)).squeeze(-1))

    def times(self, fisher: Estimate, gradients: SampleGradients) -> SampleGradients:
        return _one_block(gradients, gradients.dense() @ fisher.matrices["full"])

    def carried(self, matrices: Mapping[str, Tensor], layout: ParamLayout, old: ParamLayout) -> Mapping[str, Tensor]:
        wide = {key: layout.carry(matrix, old) for key, matrix in matrices.items()}
        return {key: layout.carry(matrix.mT.contiguous(), old).mT.contiguous() for key, matrix in wide.items()}


@final
@dataclass(frozen=True)
class LowRankKind(FisherKind):
    """Low rank plus diagonal: the leading directions whole, the rest by its diagonal.

    Args:
        rank: how many directions.
    """

    rank: int

    layerwise: ClassVar[bool] = False

    def estimate(self, task: FisherSource, labels: Labels, samples: int | None) -> Estimate:
        diagonal, rows = task.low_rank_fisher(labels, samples, self.rank)
        return Estimate(diagonal, {"rows": rows})

    def metric(self, layout: ParamLayout, fisher: Estimate, damping: float | Tensor) -> Metric:
        return LowRankPlusDiagonal(fisher.vector, fisher.matrices["rows"], damping=damping)

    def basis(self, fisher: Estimate, stored: StoredGradients) -> Basis:
        return ChangedBasis(stored, partial(product, fisher.vector, fisher.matrices["rows"]))

    def times(self, fisher: Estimate, gradients: SampleGradients) -> SampleGradients:
        dense, U = gradients.dense(), fisher.matrices["rows"]
        return _one_block(gradients, dense * fisher.vector.unsqueeze(-2) + dense @ U.mT @ U)

    def average(self, old: Estimate, new: Estimate, weight: float | Tensor) -> Estimate:
        pairs = [(each.vector, each.matrices["rows"]) for each in (old, new)]
        diagonal, rows = averaged(pairs[0], pairs[1], weight)
        return Estimate(diagonal, {"rows": rows})

    def carried(self, matrices: Mapping[str, Tensor], layout: ParamLayout, old: ParamLayout) -> Mapping[str, Tensor]:
        return {key: layout.carry(rows, old) for key, rows in matrices.items()}

    def numbers(self, layout: ParamLayout) -> int:
        return 8 * self.rank * layout.size


def _one_block(gradients: SampleGradients, rows: Tensor) -> SampleGradients:
    """Gradients that a Fisher has tied together: one block of all parameters."""
    return SampleGradients(gradients.layout, {gradients.layout.names: DenseGradients(rows)}, gradients.count)


_FISHERS: dict[FisherName, FisherKind] = {
    "diagonal": DiagonalKind(),
    "kfac": KFACKind(),
    "ekfac": EKFACKind(),
    "full": FullKind(),
}


def fisher_kind(name: FisherName, rank: int) -> FisherKind:
    """How to approximate a Fisher, by name; `rank` is for low rank plus diagonal."""
    return LowRankKind(rank) if name == "low-rank" else _FISHERS[name]


def pack(layers: Mapping[Names, LayerMoments], prefix: str = "") -> dict[str, Tensor]:
    """The matrices of layers, as they stand in a method's state."""
    pairs = [(names, (("inputs", own.inputs), ("signals", own.signals))) for names, own in layers.items()]
    return {matrix_key(prefix + kind, names): matrix for names, own in pairs for kind, matrix in own}


def unpack(matrices: Mapping[str, Tensor], prefix: str = "") -> dict[Names, LayerMoments]:
    """And back."""
    found = {}
    for key in matrices:
        kind, *names = json.loads(key)
        if kind == f"{prefix}inputs":
            layer = tuple(names)
            found[layer] = LayerMoments(matrices[key], matrices[matrix_key(f"{prefix}signals", layer)])
    return found


def _times(fisher: Estimate, layout: ParamLayout, names: Names, gradients: LayerGradients) -> LayerGradients:
    """`F g` of one layer's gradients."""
    moments = unpack(fisher.matrices).get(names)
    if moments is not None:
        return kronecker_times(moments, gradients, bias=len(names) > 1)
    return DenseGradients(gradients.slab(0, gradients.size) * fisher.vector[..., None, layout.span(names)])
