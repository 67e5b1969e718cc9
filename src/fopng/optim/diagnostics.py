"""What a step did, worked out on request from what made it."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from fopng.curvature.metric import Metric
from fopng.memory.projection import Projector, Remover


@dataclass(frozen=True)
class Diagnosis:
    """What the last step did; tensors `[...]`, NaN where a figure does not apply.

    Args:
        removed_fraction: how much of the gradient the projection took away, `|g - P g| / |g|`, momentum included.
        angle: between the step and the gradient of the loss, in degrees.
        fisher_norm: the step's length in the metric it was made in.
        condition: of the Gram matrix, damping included.
        compression_error: the share of the squared length of all directions ever stored that compression has lost.
        directions: how many gradients are stored.
        bytes: what the method holds.
    """

    removed_fraction: Tensor
    angle: Tensor
    fisher_norm: Tensor
    condition: Tensor
    compression_error: Tensor
    directions: int
    bytes: int


@final
@dataclass(frozen=True)
class Step:
    """A step that was taken, and what made it.

    Args:
        raw: the gradient of the loss, `[p]`.
        g: what the method made of it before it projected: momentum, a penalty.
        v: the step.
        projector: what projected.
        remover: what took something away from the gradient, if anything did.
        metric: in which the step has its length.
    """

    raw: Tensor
    g: Tensor
    v: Tensor
    projector: Projector | None
    remover: Remover | None
    metric: Metric

    def removed_fraction(self) -> Tensor:
        """`|g - P g| / |g|`, the one figure that costs no more than a step."""
        g = self.g
        return g.new_zeros(()) if self.remover is None else self.remover.removed(g).norm() / g.norm()

    def diagnose(self, error: Tensor, directions: int, held: int) -> Diagnosis:
        """Work the figures out.

        Args:
            error: of compression, so far.
            directions: how many gradients are stored.
            held: how many bytes are.
        """
        g, v, projector = self.g, self.v, self.projector
        removed = self.removed_fraction()
        cosine = (self.raw @ v) / (self.raw.norm() * v.norm())
        angle = torch.rad2deg(torch.arccos(cosine.clamp(-1, 1)))
        nan = g.new_tensor(torch.nan)
        condition = nan if projector is None or projector.basis.count == 0 else projector.exact_condition
        return Diagnosis(removed, angle, self.metric.norm(v), condition, error, directions, held)


def no_step(error: Tensor, directions: int, held: int) -> Diagnosis:
    """The diagnosis before there is a step."""
    unknown = torch.tensor(torch.nan)
    return Diagnosis(unknown, unknown, unknown, unknown, error, directions, held)
