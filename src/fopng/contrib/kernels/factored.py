"""Products with the stored gradients of a `Linear` layer, `d_m a_m^T`, without the large matrix in between."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from fopng.core.kernels import product_precision

ROWS, OUTPUTS, INPUTS = 64, 64, 32
"""The sizes of a tile: stored gradients, outputs, and inputs that are added up at a time."""
PROGRAMS = 512
"""How many programs there should be at least: long sums are cut until there are."""
SHORTEST = 256
"""Layers with fewer inputs are left to the library's products, which are faster there."""


def pays(inputs: int) -> bool:
    """Whether the kernel is faster for a layer than the library (measured on an H200): long rows that lie on even addresses."""
    return inputs >= SHORTEST and inputs % 16 == 0


def products(a: Tensor, d: Tensor, x: Tensor) -> Tensor:
    """`<d_m a_m^T, X>` of every stored gradient: `a [R, m, i]`, `d [R, m, o]`, `x [R, o, i]` give `[R, m]`.

    Args:
        a: inputs of the layer.
        d: signals at its output.
        x: a weight of each replica, row by row; by itself or a part of a longer vector.
    """
    (replicas, m, i), o = a.shape, d.shape[-1]
    blocks = (triton.cdiv(m, ROWS), triton.cdiv(o, OUTPUTS))
    wanted = triton.cdiv(PROGRAMS, replicas * blocks[0] * blocks[1])
    cuts = max(1, min(wanted, i // (4 * INPUTS)))
    length = INPUTS * triton.cdiv(triton.cdiv(i, INPUTS), cuts)
    cuts = triton.cdiv(i, length)
    parts = a.new_empty(blocks[1] * cuts, replicas, m)
    _products[(replicas, blocks[0], blocks[1] * cuts)](
        a,
        d,
        x,
        parts,
        m,
        i,
        o,
        x.stride(0),
        cuts,
        length,
        ROWS=ROWS,
        OUTPUTS=OUTPUTS,
        INPUTS=INPUTS,
        PRECISION=product_precision(),
        num_stages=3,
    )
    return parts[0] if parts.shape[0] == 1 else parts.sum(0)


@triton.jit
def _products(
    a,
    d,
    x,
    parts,
    m,
    i,
    o,
    x_stride,
    cuts,
    length,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    r = tl.program_id(0).to(tl.int64)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    block, cut = tl.program_id(2) // cuts, tl.program_id(2) % cuts
    outputs = block * OUTPUTS + tl.arange(0, OUTPUTS)
    a += r * m * i
    d += r * m * o
    x += r * x_stride
    total = tl.zeros((ROWS, OUTPUTS), tl.float32)
    for start in range(cut * length, min(cut * length + length, i), INPUTS):
        inputs = start + tl.arange(0, INPUTS)
        left = tl.load(a + rows[:, None] * i + inputs[None, :], (rows[:, None] < m) & (inputs[None, :] < i), 0.0)
        right = tl.load(x + outputs[:, None] * i + inputs[None, :], (outputs[:, None] < o) & (inputs[None, :] < i), 0.0)
        total = tl.dot(left, tl.trans(right), total, input_precision=PRECISION)
    signals = tl.load(d + rows[:, None] * o + outputs[None, :], (rows[:, None] < m) & (outputs[None, :] < o), 0.0)
    place = parts + (tl.program_id(2) * tl.num_programs(0) + r) * m + rows
    tl.store(place, tl.sum(total * signals, 1), rows < m)
