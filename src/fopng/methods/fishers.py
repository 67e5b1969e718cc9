"""The Fishers that methods may use as their metric: what is kept of one, and what is made of it."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias, final

import torch
from torch import Tensor

from fopng.basis import ChangedBasis
from fopng.factors import DenseGradients, LayerGradients, SampleGradients
from fopng.kfac import EigenCorrected, Kronecker, kronecker_matvec, kronecker_times
from fopng.kronecker import KroneckerFisher, LayerBasis, across
from fopng.likelihood import Labels
from fopng.memory import Basis, GradientMemory, ScaledBasis
from fopng.methods.task import TaskData
from fopng.metric import Diagonal, Full, Metric
from fopng.moments import LayerMoments, moment_numbers
from fopng.parameters import ParamLayout
from fopng.pulling import Names

FisherName: TypeAlias = Literal["diagonal", "kfac", "ekfac", "full"]
"""How a Fisher is approximated: its diagonal, a Kronecker product a layer, that with corrected eigenvalues, or not at all."""


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


class FisherKind(ABC):
    """One way to approximate a Fisher."""

    layerwise: ClassVar[bool] = True
    """Whether layers have nothing to do with one another."""

    @abstractmethod
    def estimate(self, task: TaskData, labels: Labels, samples: int | None) -> Estimate:
        """The Fisher of the task at hand."""

    @abstractmethod
    def metric(self, layout: ParamLayout, fisher: Estimate, damping: float | Tensor) -> Metric:
        """`F + damping I`."""

    @abstractmethod
    def basis(self, fisher: Estimate, stored: GradientMemory) -> Basis:
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

    def estimate(self, task: TaskData, labels: Labels, samples: int | None) -> Estimate:
        return Estimate(task.fisher(labels, samples), {})

    def metric(self, layout: ParamLayout, fisher: Estimate, damping: float | Tensor) -> Metric:
        return Diagonal(fisher.vector, damping=damping)

    def basis(self, fisher: Estimate, stored: GradientMemory) -> Basis:
        return ScaledBasis(stored, fisher.vector)

    def times(self, fisher: Estimate, gradients: SampleGradients) -> SampleGradients:
        layers = {
            names: DenseGradients(own.slab(0, own.size) * fisher.vector[..., None, gradients.layout.span(names)])
            for names, own in gradients.layers.items()
        }
        return SampleGradients(gradients.layout, layers, gradients.count)


class _Factored(FisherKind):
    """Kronecker products: `F G` has factors where `G` has."""

    def numbers(self, layout: ParamLayout) -> int:
        return 8 * moment_numbers(layout)

    def basis(self, fisher: Estimate, stored: GradientMemory) -> Basis:
        layers = unpack(fisher.matrices)
        inside = {name for names in layers for name in names}
        if all(names in layers or inside.isdisjoint(names) for names in stored.layers):
            return stored.mapped(lambda names, own: _times(fisher, stored.layout, names, own))
        # stored by parameters, not by layers: there are no factors to keep
        return ChangedBasis(stored, lambda v: kronecker_matvec(stored.layout, layers, fisher.vector, v))

    def times(self, fisher: Estimate, gradients: SampleGradients) -> SampleGradients:
        layers = {names: _times(fisher, gradients.layout, names, own) for names, own in gradients.layers.items()}
        return SampleGradients(gradients.layout, layers, gradients.count)


@final
class KFACKind(_Factored):
    """KFAC: two moments a layer."""

    def estimate(self, task: TaskData, labels: Labels, samples: int | None) -> Estimate:
        moments = task.moments(labels, samples)
        return Estimate(moments.rest, pack(moments.layers))

    def metric(self, layout: ParamLayout, fisher: Estimate, damping: float | Tensor) -> Metric:
        return Kronecker(layout, unpack(fisher.matrices), fisher.vector, damping=damping)


@final
class EKFACKind(_Factored):
    """EKFAC: beside the two moments, the eigenvectors and the second moments along them."""

    def estimate(self, task: TaskData, labels: Labels, samples: int | None) -> Estimate:
        moments = task.moments(labels, samples)
        bases = {names: LayerBasis.of(own, bias=len(names) > 1) for names, own in moments.layers.items()}
        squares = task.turned_squares(bases, labels, samples)
        vectors = {names: LayerMoments(own.inputs, own.signals) for names, own in bases.items()}
        values = {_key("squares", names): own for names, own in squares.items()}
        return Estimate(moments.rest, pack(moments.layers) | pack(vectors, "vectors of ") | values)

    def kept(self, fisher: Estimate) -> Estimate:
        # tasks have eigenvectors of their own, which cannot be averaged; their moments can
        return Estimate(fisher.vector, pack(unpack(fisher.matrices)))

    def metric(self, layout: ParamLayout, fisher: Estimate, damping: float | Tensor) -> Metric:
        layers = {
            names: LayerBasis(
                own.inputs, own.signals, fisher.matrices[_key("squares", names)], None, bias=len(names) > 1
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

    def estimate(self, task: TaskData, labels: Labels, samples: int | None) -> Estimate:
        matrix = task.full_fisher(labels, samples)
        return Estimate(matrix.diagonal(dim1=-2, dim2=-1).clone(), {"full": matrix})

    def metric(self, layout: ParamLayout, fisher: Estimate, damping: float | Tensor) -> Metric:
        return Full(fisher.matrices["full"], damping=damping)

    def basis(self, fisher: Estimate, stored: GradientMemory) -> Basis:
        matrix = fisher.matrices["full"]
        return ChangedBasis(stored, lambda v: (matrix @ v.unsqueeze(-1)).squeeze(-1))

    def times(self, fisher: Estimate, gradients: SampleGradients) -> SampleGradients:
        # the Fisher ties all parameters together: one block of all of them
        rows = DenseGradients(gradients.dense() @ fisher.matrices["full"])
        return SampleGradients(gradients.layout, {gradients.layout.names: rows}, gradients.count)


FISHERS: dict[FisherName, FisherKind] = {
    "diagonal": DiagonalKind(),
    "kfac": KFACKind(),
    "ekfac": EKFACKind(),
    "full": FullKind(),
}
"""Every way to approximate a Fisher, by its name."""


def pack(layers: Mapping[Names, LayerMoments], prefix: str = "") -> dict[str, Tensor]:
    """The matrices of layers, as they stand in a method's state."""
    pairs = [(names, (("inputs", own.inputs), ("signals", own.signals))) for names, own in layers.items()]
    return {_key(prefix + kind, names): matrix for names, own in pairs for kind, matrix in own}


def unpack(matrices: Mapping[str, Tensor], prefix: str = "") -> dict[Names, LayerMoments]:
    """And back."""
    found = {}
    for key in matrices:
        kind, *names = json.loads(key)
        if kind == f"{prefix}inputs":
            layer = tuple(names)
            found[layer] = LayerMoments(matrices[key], matrices[_key(f"{prefix}signals", layer)])
    return found


def _key(kind: str, names: Names) -> str:
    return json.dumps([kind, *names])


def _times(fisher: Estimate, layout: ParamLayout, names: Names, gradients: LayerGradients) -> LayerGradients:
    """`F g` of one layer's gradients."""
    moments = unpack(fisher.matrices).get(names)
    if moments is not None:
        return kronecker_times(moments, gradients, bias=len(names) > 1)
    return DenseGradients(gradients.slab(0, gradients.size) * fisher.vector[..., None, layout.span(names)])
