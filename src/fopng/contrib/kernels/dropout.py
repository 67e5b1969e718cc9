"""Dropout by key in one pass: the mask is computed where it is used, and never written."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

WIDTH = 1024
"""Features a program."""


def dropped(x: Tensor, keys: Tensor, share: float, place: int) -> Tensor:
    """Features `[R, ...]` with some set to zero, by the keys `[R]` and the place; the others are scaled up."""
    x = x.contiguous()
    out, features = torch.empty_like(x), x[0].numel()
    grid = (x.shape[0], triton.cdiv(features, WIDTH))
    _dropped[grid](x, keys, out, place, int(share * 2**32), 1 / (1 - share), features, WIDTH=WIDTH)
    return out


@triton.jit
def _dropped(x, keys, out, place, threshold, scale, features, WIDTH: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    positions = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = positions < features
    start = _scrambled((tl.load(keys + r) + place).to(tl.uint32))
    drawn = _scrambled(positions.to(tl.uint32) ^ start)
    own = tl.load(x + r * features + positions, inside, 0.0)
    scaled = tl.where(drawn.to(tl.int64) >= threshold, own * scale, 0.0)
    tl.store(out + r * features + positions, scaled, inside)


@triton.jit
def _scrambled(x):
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)
