"""Where the samples are in what an operation was given and gave: found on a trial batch, proven by plain autograd."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fopng.gradients.capture import SiteCall

FOLDED = -1
"""Samples and positions share the first axis, sample by sample."""

INTERLEAVED = -2
"""The same, position by position."""

Way = tuple[object, tuple[int, ...]]
"""A use of a parameter, and the dimensions of the tensors in it."""

Axes = tuple[int | None, ...]
"""The axis of the samples in each tensor of a call; None where there is none."""


def way_of(call: SiteCall, lead: int) -> Way:
    """What tells two ways of using a parameter apart."""
    return call.site, tuple(tensor.dim() - lead for tensor in call.tensors)


def find_axes(call: SiteCall, n: int) -> list[Axes]:
    """Find where the samples may be in a call's tensors, the likeliest first."""
    found = [_may_be(tensor, n) for tensor in call.tensors]
    common = [axis for axis in found[0] if all(axis in own for own in found)]
    mixed = tuple(own[0] if own else None for own in found)
    return list(dict.fromkeys([*((axis,) * len(found) for axis in common), mixed]))


def _may_be(tensor: Tensor, n: int) -> list[int]:
    """The first axis, the second, the first folded with positions, sample by sample or position by position."""
    sizes = tensor.shape
    found = [axis for axis in (0, 1) if len(sizes) > axis and sizes[axis] == n]
    folded = len(sizes) > 0 and sizes[0] > n and sizes[0] % n == 0
    return found + [FOLDED, INTERLEAVED] * folded


def axes_fit(call: SiteCall, axes: Axes, lead: int, n: int) -> bool:
    """Tell whether the samples are where they were found to be: an operation may be sent a part of them."""
    sizes = [
        n if axis is None else tensor.shape[lead] % n or n if axis < 0 else tensor.shape[lead + axis]
        for tensor, axis in zip(call.tensors, axes, strict=True)
    ]
    return all(size == n for size in sizes)


def samples_first(tensor: Tensor, axis: int | None, lead: int, n: int) -> Tensor:
    """Bring `[*lead, ...]` into the form `[*lead, n, ...]`; one that is not per sample stays."""
    if axis == FOLDED:
        return tensor.reshape(*tensor.shape[:lead], n, -1, *tensor.shape[lead + 1 :])
    if axis == INTERLEAVED:
        return tensor.reshape(*tensor.shape[:lead], -1, n, *tensor.shape[lead + 1 :]).transpose(lead, lead + 1)
    return tensor.movedim(lead + axis, lead) if axis else tensor


def at_least_single(tensor: Tensor) -> Tensor:
    """Half precision as single: gradients are summed and squared."""
    return tensor.float() if tensor.dtype in (torch.half, torch.bfloat16) else tensor


def rows_of(tensors: Sequence[Tensor], axes: Axes, lead: int, n: int) -> tuple[list[Tensor], int]:
    """A call's tensors as `[r, ...]`, one row for each replica, sample and fold; and how many folds a sample has."""
    found, folds = [], 1
    for tensor, axis in zip(tensors, axes, strict=True):
        first = samples_first(tensor, axis, lead, n).flatten(0, lead)
        if axis is not None and axis < 0:
            folds = first.shape[1]
            first = first.flatten(0, 1)
        found.append(at_least_single(first))
    return found, folds
