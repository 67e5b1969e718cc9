"""The elementwise end of a step: the natural gradient and its length in one pass, and the move of those that go on in another."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

WIDTH = 4096
"""Parameters a program."""


def natural_direction(g: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor]:
    """`F^-1 g [R, p]` for a diagonal `F`, and `g^T F^-1 g [R]`, from one pass over both."""
    replicas, p = g.shape
    direction = torch.empty_like(g)
    parts = g.new_empty(replicas, triton.cdiv(p, WIDTH))
    _direction[(replicas, parts.shape[1])](g, inverse, direction, parts, p, WIDTH=WIDTH)
    return direction, parts.sum(-1)


def move(theta: Tensor, v: Tensor, factor: float | Tensor, alive: Tensor) -> None:
    """`theta -= factor v` for the replicas that are alive, in place.

    Args:
        theta: `[R, p]`.
        v: `[R, p]`.
        factor: a number, or one a replica `[R, 1]`.
        alive: `[R]`.
    """
    replicas, p = theta.shape
    own = isinstance(factor, Tensor)
    number = 1.0 if own else factor
    _move[(replicas, triton.cdiv(p, WIDTH))](theta, v, factor if own else v, number, alive, p, OWN=own, WIDTH=WIDTH)


@triton.jit
def _direction(g, inverse, direction, parts, p, WIDTH: tl.constexpr):
    r, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    places = block * WIDTH + tl.arange(0, WIDTH)
    inside = places < p
    own = tl.load(g + r * p + places, inside, 0.0)
    natural = own * tl.load(inverse + r * p + places, inside, 0.0)
    tl.store(direction + r * p + places, natural, inside)
    tl.store(parts + r * tl.num_programs(1) + block, tl.sum(own * natural))


@triton.jit
def _move(theta, v, factors, number, alive, p, OWN: tl.constexpr, WIDTH: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    factor = tl.load(factors + r) if OWN else number
    if tl.load(alive + r) != 0:
        places = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
        inside = places < p
        step = tl.load(v + r * p + places, inside, 0.0) * factor
        tl.store(theta + r * p + places, tl.load(theta + r * p + places, inside, 0.0) - step, inside)
