"""Random numbers as a function of a key: the same on every device, for one run and for many side by side, inside a CUDA graph."""

import torch
from torch import Tensor

BITS = 0xFFFFFFFF
"""Keys and numbers have 32 bits, held in int64."""


def scrambled(x: Tensor) -> Tensor:
    """A bijection of 32-bit numbers (held in int64) that leaves no pattern: the finaliser `lowbias32`."""
    x = x & BITS
    x = (x ^ x >> 16) * 0x7FEB352D & BITS
    x = (x ^ x >> 15) * 0x846CA68B & BITS
    return x ^ x >> 16


def choose_rows(key: Tensor, count: int, rows: int, members: Tensor) -> Tensor:
    """Choose among the first rows of a table without replacement: int64 `[..., count]`, in an order drawn too.

    Args:
        key: int64 `[...]`, what alone decides.
        count: how many, at most `rows`.
        rows: how many rows the table has.
        members: how many of its first rows may be chosen, int64 `[...]`; where they are fewer than `count`, others come last.

    >>> choose_rows(torch.tensor(3), 4, 5, torch.tensor(4)).sort().values
    tensor([0, 1, 2, 3])
    """
    row = torch.arange(rows, device=key.device)
    place = scrambled(row ^ scrambled(key).unsqueeze(-1))
    place = torch.where(row < members.unsqueeze(-1), place, place + BITS + 1)
    return place.topk(count, largest=False).indices


def uniform(key: Tensor, index: Tensor, columns: int) -> Tensor:
    """Numbers between 0 and 1, never either, that the key, the index and the column alone decide: float64 `[..., k, columns]`.

    Args:
        key: int64 `[...]`.
        index: int64 `[k]`.
        columns: how many numbers for each index.
    """
    row = scrambled(index ^ scrambled(key).unsqueeze(-1)).unsqueeze(-1)
    found = scrambled(torch.arange(columns, device=key.device) ^ scrambled(row + 0x9E3779B9))
    return (found.double() + 0.5) / (BITS + 1)


def normal(key: Tensor, index: Tensor, columns: int) -> Tensor:
    """Standard normal numbers that the key, the index and the column alone decide: float64 `[..., k, columns]`."""
    found: Tensor = torch.special.ndtri(uniform(key, index, columns))
    return found


def signs(key: Tensor, index: Tensor, values: Tensor) -> Tensor:
    """Values `[..., k, columns]`, each with a sign that the key, the index and the column alone decide."""
    row = scrambled(index ^ scrambled(key).unsqueeze(-1)).unsqueeze(-1)
    odd = scrambled(torch.arange(values.shape[-1], device=values.device) ^ scrambled(row)) & 1
    return torch.where(odd == 1, values, -values)
