"""The task at hand, as a method may ask about it: its Fishers, its gradients, its samples, and where the parameters are."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from fopng.core.layout import wide_dtype
from fopng.core.likelihood import Labels, Score, Signals
from fopng.core.vector import Vector
from fopng.curvature import estimate
from fopng.curvature.fishers import FisherSource
from fopng.curvature.kronecker import LayerBasis
from fopng.curvature.moments import InputMoment, Moments
from fopng.curvature.sampling import SampleStream
from fopng.gradients.layers import Names, SampleGradients
from fopng.gradients.per_sample import PerSampleGradients
from fopng.memory.probe import ProbeKind, Prober
from fopng.memory.replay_draws import TaskSamples


@final
@dataclass(frozen=True)
class Task(FisherSource):
    """The task at hand of one run, of a run whose data are sharded over processes, or of replicas.

    Args:
        source: the model.
        stream: the data.
        sampling: its samples, for methods that keep some or learn from answers alone.
        weights: the tensors that hold the parameters, by name.
        probe: what stands for its inputs when they are gone.
    """

    source: PerSampleGradients
    stream: SampleStream
    sampling: TaskSamples
    weights: Mapping[str, Tensor]
    probe: ProbeKind = None

    @property
    def prober(self) -> Prober:
        """What makes its probe."""
        return Prober(self.source, self.stream, self.sampling, self.probe)

    def parameters(self) -> Vector:
        """A copy of the parameters now."""
        kind = wide_dtype(self.weights.values())
        return Vector({name: own.detach().to(kind, copy=True) for name, own in self.weights.items()}, self.stream.axis)

    def fisher(self, labels: Labels, samples: int | None) -> Vector:
        """Its diagonal Fisher now."""
        return estimate.diagonal_fisher(self.source, self.stream, labels=labels, samples=samples)

    def gradients(self, count: int, score: Score) -> list[SampleGradients]:
        """Gradients of a score of `count` of its samples, now."""
        return estimate.sample_gradients(self.source, self.stream, count, score=score)

    def input_moments(self, samples: int | None) -> dict[Names, InputMoment]:
        """`A [*lead, i, i]` of what each weight is given now; one that it does not reach, and a table, is absent."""
        return estimate.input_moments(self.source, self.stream, samples=samples)

    def moments(self, signals: Signals, samples: int | None) -> Moments:
        """Both second moments of each Linear and Conv layer now, and a diagonal for everything else."""
        return estimate.layer_moments(self.source, self.stream, signals=signals, samples=samples)

    def squares_along(
        self, bases: Mapping[Names, LayerBasis], labels: Labels, samples: int | None
    ) -> dict[Names, Tensor]:
        """Mean squared gradients along the eigenvectors of each layer now, `[*lead, o, i]`."""
        return estimate.squares_along(self.source, self.stream, bases, labels=labels, samples=samples)

    def full_fisher(self, labels: Labels, samples: int | None) -> tuple[Tensor, dict[str, torch.Size]]:
        """Its whole Fisher now, `[*lead, p, p]`, and the parameters in its order; for small models."""
        found = estimate.full_fisher(self.source, self.stream, labels=labels, samples=samples)
        return found, dict(self.source.layout.shapes)

    def low_rank_fisher(self, labels: Labels, samples: int | None, rank: int) -> tuple[Vector, Vector]:
        """Its Fisher now as a diagonal and the leading rows `[*lead, rank, *shape]`."""
        return estimate.low_rank_fisher(self.source, self.stream, rank, labels=labels, samples=samples)
