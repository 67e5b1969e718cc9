"""The nearest vector that no old gradient speaks against: GEM's quadratic program, solved in its small dual."""

import torch
import torch.nn.functional as F
from torch import Tensor

from fopng.core.vector import Vector

NOISE = 1e-12
"""Added to the unit diagonal of the normalised Gram matrix, so that gradients that depend on each other have one answer too; what
is below it does not count as negative. Sixteen units of rounding, where those are more."""

PART = 8192
"""Numbers of a row that are multiplied and added up at a time."""


def cone_weights(gram: Tensor, products: Tensor) -> Tensor:
    """The dual of GEM's program, `argmin_v 1/2 v^T A v + b^T v` over `v >= 0`, exact to rounding: `[..., k]`.

    The complementarity conditions `w = A v + b, v >= 0, w >= 0, v w = 0` are solved by principal pivots: the most negative entry
    first, and where that goes round in circles the first negative one, which never does. The number of pivots is fixed, so that
    the same work is done for every replica and inside a CUDA graph; on a CPU it ends when all are done.

    Args:
        gram: `A = G G^T` of the old gradients, `[..., k, k]`.
        products: `b = G g`, `[..., k]`.

    >>> cone_weights(torch.eye(2), torch.tensor([-3.0, 2.0])).round()
    tensor([3., 0.])
    """
    k = products.shape[-1]
    scale = _inverse_norms(gram)
    A = gram.double() * scale.unsqueeze(-1) * scale.unsqueeze(-2)
    noise = max(NOISE, 16 * torch.finfo(gram.dtype).eps)
    A = A + torch.diag_embed(1 + noise - A.diagonal(dim1=-2, dim2=-1))
    b = products.double() * scale
    table = torch.cat([A, b.unsqueeze(-1)], -1)
    chosen = torch.zeros_like(products, dtype=torch.bool)
    limit = -noise * b.abs().amax(-1, keepdim=True)
    for pivot in range(3 * k):
        values = table[..., -1]
        negative = values < limit
        if values.device.type == "cpu" and not bool(negative.any()):
            break
        order = values if pivot < 2 * k else -negative.to(values.dtype)
        here = _one_hot(order.argmin(-1), k) & negative
        table = _pivoted(table, here)
        chosen = chosen ^ here
    return (torch.where(chosen, table[..., -1], 0.0).clamp(min=0) * scale).to(products.dtype)


def cone_products(G: Vector, g: Vector) -> tuple[Tensor, Tensor]:
    """`G G^T` and `G g` of few long rows, added up part by part: rounded far less than in one product.

    Args:
        G: k rows, `[*lead, k, *shape]`.
        g: a vector, `[*lead, *shape]`.

    Returns:
        `[*lead, k, k]` and `[*lead, k]`.
    """
    gram, products = G.like.new_zeros(*G.replicas, G.replicas[-1]), G.like.new_zeros(G.replicas)
    for name, part in G.parts.items():
        rows = part.reshape(*part.shape[: G.lead], -1)
        row = g[name].reshape(*rows.shape[:-2], -1) if name in g else torch.zeros_like(rows[..., 0, :])
        own, seen = _part_products(rows, row)
        gram, products = gram + own, products + seen
    return gram, products


def _part_products(G: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """The same of one parameter, flattened: `[*lead, k, q]` and `[*lead, q]`."""
    whole = g.shape[-1] // PART * PART
    rest, own_rest = G[..., whole:], g[..., whole:]
    gram, products = rest @ rest.mT, rest @ own_rest.unsqueeze(-1)
    if whole:
        parts, own = (
            G[..., :whole].unflatten(-1, (-1, PART)).transpose(-2, -3),
            g[..., :whole].unflatten(-1, (-1, PART)),
        )
        # replicas and parts are one axis of a batched product: copied here, they are not copied for each of them
        parts = parts.contiguous() if parts.dim() > 3 else parts
        gram, products = gram + (parts @ parts.mT).sum(-3), products + (parts @ own.unsqueeze(-1)).sum(-3)
    return gram, products.squeeze(-1)


def _inverse_norms(gram: Tensor) -> Tensor:
    """One over each gradient's length; a gradient of zero asks for nothing."""
    norms = gram.double().diagonal(dim1=-2, dim2=-1).clamp(min=0).sqrt()
    return torch.where(norms > 0, 1 / norms, 0.0)


def _one_hot(index: Tensor, size: int) -> Tensor:
    return torch.arange(size, device=index.device) == index.unsqueeze(-1)


def _pivoted(table: Tensor, here: Tensor) -> Tensor:
    """Exchange `v_i` and `w_i` in the equations `[..., k, k + 1]`, where `here [..., k]` is i; nothing where it is nowhere."""
    mark = here.to(table.dtype)
    column = (table[..., :-1] * mark.unsqueeze(-2)).sum(-1, keepdim=True)
    row = (table * mark.unsqueeze(-1)).sum(-2, keepdim=True)
    turns = here.any(-1)[..., None, None]
    head = torch.where(turns, (column * mark.unsqueeze(-1)).sum(-2, keepdim=True), 1.0)
    place = F.pad(here, (0, 1)).unsqueeze(-2)
    solved = torch.where(place, 1.0, -row) / head
    rest = torch.where(place, 0.0, table) + column * solved
    return torch.where(turns, torch.where(here.unsqueeze(-1), solved, rest), table)
