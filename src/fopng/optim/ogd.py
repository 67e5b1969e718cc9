"""Orthogonal Gradient Descent (Farajtabar et al., 2020)."""

from collections.abc import Collection
from typing import ClassVar, final

import torch

from fopng.core.vector import Vector
from fopng.memory.orthonormal import OrthonormalProjector
from fopng.optim.method import About, Prepared, Running, Step
from fopng.optim.projected_base import Projected, StoredState
from fopng.optim.settings import settings


@final
@settings
class OGD(Projected[StoredState]):
    """Orthogonal Gradient Descent: SGD on what is orthogonal to the stored gradients of old tasks.

    Eq. 6: `v = eta (g - G (G^T G)^-1 G^T g)`. With `gram_damping=0` exactly, by an orthonormal basis of the stored gradients.
    """

    about: ClassVar[About] = About("ogd", "Orthogonal gradient descent", 2020, "Farajtabar et al.", "gradients")

    def prepare(self, state: StoredState, names: Collection[str]) -> Prepared:
        if not state.gradients.count or bool(torch.as_tensor(self.used_gram_damping > 0).any()):
            return super().prepare(state, names)
        basis = self.basis(state, names)
        return Prepared(OrthonormalProjector.build(basis) if basis.count else None)

    def bend(self, v: Vector, step: Step[StoredState, Running]) -> Vector:
        return v if step.prepared.remover is None else step.prepared.remover(v)
