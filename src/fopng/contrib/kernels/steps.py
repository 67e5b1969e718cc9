"""The elementwise end of a step: the move of the replicas that go on, in one pass."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

WIDTH = 4096
"""Parameters a program."""


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
def _move(theta, v, factors, number, alive, p, OWN: tl.constexpr, WIDTH: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    factor = tl.load(factors + r) if OWN else number
    if tl.load(alive + r) != 0:
        places = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
        inside = places < p
        step = tl.load(v + r * p + places, inside, 0.0) * factor
        tl.store(theta + r * p + places, tl.load(theta + r * p + places, inside, 0.0) - step, inside)
