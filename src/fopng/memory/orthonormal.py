"""Projecting away from directions by an orthonormal basis of their span: exact however nearly dependent they are."""

from typing import final

import torch
from torch import Tensor

from fopng.core.vector import Vector
from fopng.gradients.directions import Basis


@final
class OrthonormalProjector:
    """`P g = g - Q Q^T g`, where the columns of `Q` are an orthonormal basis of the span of `B`.

    The normal equations of `Projector` square the condition of `B`; a QR decomposition does not. `Q` is written out: it
    takes the room of as many models as there are directions.

    Args:
        rows: `Q^T` for each parameter, `[*lead, m, *shape]`; a row is zero where `B` has a smaller rank.
    """

    def __init__(self, rows: Vector) -> None:
        self.rows = rows

    @classmethod
    def build(cls, basis: Basis) -> "OrthonormalProjector":
        """Orthonormalise the directions, in float64; those that are combinations of others up to rounding add nothing.

        Args:
            basis: `B`, of at least one direction.
        """
        written = basis.rows()
        flat = written.flat()
        if not bool(flat.isfinite().all()):
            raise ValueError(
                "Expected finite stored gradients, got NaN or infinity in them. Has the training diverged?"
            )
        held, place = orthonormal_rows(flat).to(flat.dtype), 0
        parts = {}
        for name, part in written.parts.items():
            size = part.shape[written.lead :].numel()
            own = held[..., place : place + size]
            parts[name] = own.reshape(*own.shape[:-1], *part.shape[written.lead :])
            place += size
        return cls(Vector(parts, written.lead))

    def __call__(self, g: Vector) -> Vector:
        """Project a gradient, twice: the second time takes away what the rounding of the first has left."""
        once = g - self.removed(g)
        return once - self.removed(once)

    def removed(self, g: Vector) -> Vector:
        """`Q Q^T g`, in the parameters of `g`."""
        own = self.rows.only(g.parts)
        if not own.parts:
            return g.zeros()
        flat = {name: part.reshape(*part.shape[: own.lead], -1) for name, part in own.parts.items()}
        c = sum(q @ g[name].reshape(*g[name].shape[: g.lead], -1, 1) for name, q in flat.items())
        return g.zeros() + Vector({name: (q.mT @ c).reshape(g[name].shape) for name, q in flat.items()}, g.lead)


def orthonormal_rows(rows: Tensor) -> Tensor:
    """An orthonormal basis of the span of rows `[*lead, m, p]`, in float64, as rows; zero beyond their rank.

    >>> orthonormal_rows(torch.tensor([[2.0, 0.0, 0.0], [4.0, 0.0, 0.0]])).abs().round()
    tensor([[1., 0., 0.],
            [0., 0., 0.]], dtype=torch.float64)
    """
    wide = rows.double()
    # of one length: a short gradient is as much a direction as a long one
    lengths = wide.norm(dim=-1, keepdim=True)
    Q, R = torch.linalg.qr((wide / torch.where(lengths > 0, lengths, 1.0)).mT)
    U, S, _ = torch.linalg.svd(R, full_matrices=False)
    limit = S[..., :1] * max(rows.shape[-2:]) * torch.finfo(rows.dtype).eps
    found = ((Q @ U) * (limit < S).unsqueeze(-2)).mT
    missing = rows.shape[-2] - found.shape[-2]
    return torch.nn.functional.pad(found, (0, 0, 0, missing)) if missing else found
