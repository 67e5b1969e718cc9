"""What a step did, worked out on request from what made it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fopng.memory.gradients import GradientMemory
from fopng.optim.method import Taken


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
        coverage: of the parameters in matrices, the share that has the method's own metric (`fopng.coverage`).
    """

    removed_fraction: Tensor
    angle: Tensor
    fisher_norm: Tensor
    condition: Tensor
    compression_error: Tensor
    directions: int
    bytes: int
    coverage: float | None = None

    def of_step(self) -> dict[str, Tensor]:
        """The figures that describe the step, by name."""
        return {
            "removed_fraction": self.removed_fraction,
            "angle": self.angle,
            "fisher_norm": self.fisher_norm,
            "condition": self.condition,
            "directions": torch.tensor(self.directions),
        }


def diagnosis_of(taken: Taken | None, memory: GradientMemory | None, held: int, *, condition: bool = True) -> Diagnosis:
    """Work the figures out.

    Args:
        taken: the last step; None where there is none.
        memory: the stored gradients, for methods that store some.
        held: how many bytes are.
        condition: whether that of the Gram matrix is worked out, from its eigenvalues.
    """
    nan = torch.tensor(torch.nan)
    error = nan if memory is None else torch.tensor(0.0) if memory.error is None else memory.error
    directions = 0 if memory is None else memory.count
    if taken is None:
        return Diagnosis(nan, nan, nan, nan, error, directions, held)
    cosine = taken.raw.dot(taken.v) / (taken.raw.norm() * taken.v.norm())
    angle = torch.rad2deg(torch.arccos(cosine.clamp(-1, 1)))
    projector, metric = taken.prepared.projector, taken.prepared.metric
    exact = projector.exact_condition if condition and projector is not None else nan.to(cosine)
    return Diagnosis(taken.removed_fraction, angle, metric.norm(taken.v), exact, error, directions, held)
