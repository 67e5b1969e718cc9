"""Convolutions of many replicas with weights of their own, the patches under the kernel read where they lie.

`x [R, n, c, h, w]`, `weight [R, o, c, k, l]`, odd `k` and `l`, the size kept by padding.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from fopng.core.kernels import product_precision

OUTPUTS, PLACES, CHANNELS = 32, 128, 32
"""The sizes of a tile of the convolution: outputs, places, and input channels that are added up at a time."""


def convolved(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The convolution, `[R, n, o, h, w]`."""
    (replicas, n, c, h, w), o = x.shape, weight.shape[1]
    out = x.new_empty(replicas, n, o, h, w)
    _convolved[(replicas * n, triton.cdiv(h * w, PLACES), triton.cdiv(o, OUTPUTS))](
        x,
        # by place under the kernel, so that neighbouring channels lie together
        weight.permute(0, 3, 4, 1, 2).contiguous(),
        weight if bias is None else bias,
        out,
        n,
        c,
        o,
        h,
        w,
        HIGH=weight.shape[3],
        WIDE=weight.shape[4],
        BIAS=bias is not None,
        OUTPUTS=OUTPUTS,
        PLACES=PLACES,
        CHANNELS=min(CHANNELS, _tile(c)),
        PRECISION=product_precision(),
        num_stages=2,
    )
    return out


def weight_gradient(x: Tensor, back: Tensor, kernel: tuple[int, int]) -> Tensor:
    """The gradient of the weight, `[R, o, c, k, l]`, from the signals at the output, `back [R, n, o, h, w]`."""
    (replicas, n, c, h, w), o = x.shape, back.shape[2]
    high, wide = kernel
    # one part a sample, added up afterwards: the same sum whatever runs first
    parts = x.new_empty(n, replicas, high * wide, o, c)
    outputs, channels = min(64, _tile(o)), min(64 if h * w < 512 else 16, _tile(c))
    _weight_gradient[(replicas * n, high * wide * triton.cdiv(o, outputs), triton.cdiv(c, channels))](
        x,
        back,
        parts,
        n,
        c,
        o,
        h,
        w,
        HIGH=high,
        WIDE=wide,
        OUTPUTS=outputs,
        CHANNELS=channels,
        PLACES=64 if h * w < 512 else 32,
        PRECISION=product_precision(),
        num_stages=3,
    )
    return parts.sum(0).view(replicas, high, wide, o, c).permute(0, 3, 4, 1, 2)


def _tile(size: int) -> int:
    return max(16, int(triton.next_power_of_2(size)))


@triton.jit
def _convolved(
    x,
    weight,
    bias,
    out,
    n,
    c,
    o,
    h,
    w,
    HIGH: tl.constexpr,
    WIDE: tl.constexpr,
    BIAS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    PLACES: tl.constexpr,
    CHANNELS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    sample = tl.program_id(0).to(tl.int64)
    r = sample // n
    places = tl.program_id(1) * PLACES + tl.arange(0, PLACES)
    outputs = tl.program_id(2) * OUTPUTS + tl.arange(0, OUTPUTS)
    size, blocks = h * w, tl.cdiv(c, CHANNELS)
    y, z = places // w, places % w
    x += sample * c * size
    weight += r * HIGH * WIDE * o * c
    total = tl.zeros((OUTPUTS, PLACES), tl.float32)
    for step in range(HIGH * WIDE * blocks):
        tap = step // blocks
        channels = (step % blocks) * CHANNELS + tl.arange(0, CHANNELS)
        down, right = tap // WIDE - HIGH // 2, tap % WIDE - WIDE // 2
        inside = (y + down >= 0) & (y + down < h) & (z + right >= 0) & (z + right < w)
        shifted = places + down * w + right
        patch = tl.load(x + channels[:, None] * size + shifted[None, :], inside[None, :] & (channels[:, None] < c), 0.0)
        known = (outputs[:, None] < o) & (channels[None, :] < c)
        kernel = tl.load(weight + tap * o * c + outputs[:, None] * c + channels[None, :], known, 0.0)
        total = tl.dot(kernel, patch, total, input_precision=PRECISION)
    if BIAS:
        total += tl.load(bias + r * o + outputs, outputs < o, 0.0)[:, None]
    place = out + sample * o * size + outputs[:, None] * size + places[None, :]
    tl.store(place, total, (outputs[:, None] < o) & (places[None, :] < size))


@triton.jit
def _weight_gradient(
    x,
    back,
    parts,
    n,
    c,
    o,
    h,
    w,
    HIGH: tl.constexpr,
    WIDE: tl.constexpr,
    OUTPUTS: tl.constexpr,
    CHANNELS: tl.constexpr,
    PLACES: tl.constexpr,
    PRECISION: tl.constexpr,
):
    sample = tl.program_id(0).to(tl.int64)
    tap, block = tl.program_id(1) % (HIGH * WIDE), tl.program_id(1) // (HIGH * WIDE)
    outputs = block * OUTPUTS + tl.arange(0, OUTPUTS)
    channels = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)
    down, right = tap // WIDE - HIGH // 2, tap % WIDE - WIDE // 2
    size = h * w
    x += sample * c * size
    back += sample * o * size
    total = tl.zeros((OUTPUTS, CHANNELS), tl.float32)
    for start in range(0, size, PLACES):
        places = start + tl.arange(0, PLACES)
        y, z = places // w + down, places % w + right
        inside = (y >= 0) & (y < h) & (z >= 0) & (z < w) & (places < size)
        shifted = places + down * w + right
        patch = tl.load(x + channels[:, None] * size + shifted[None, :], inside[None, :] & (channels[:, None] < c), 0.0)
        known = (outputs[:, None] < o) & (places[None, :] < size)
        signal = tl.load(back + outputs[:, None] * size + places[None, :], known, 0.0)
        total = tl.dot(signal, tl.trans(patch), total, input_precision=PRECISION)
    row = (sample % n) * (tl.num_programs(0) // n) + sample // n
    place = parts + (row * HIGH * WIDE + tap) * o * c + outputs[:, None] * c + channels[None, :]
    tl.store(place, total, (outputs[:, None] < o) & (channels[None, :] < c))
