"""A byte-level causal transformer of 0.7 million parameters."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from fopng.lab.engine.randomness import drawn_from

BYTES = 256


@final
class Transformer(nn.Module):
    """Layers that normalize first (GPT-2's); from bytes `[n, t]` to logits `[n, t, 256]` of the byte that follows each.

    Args:
        seed: what the weights are drawn from.
        width: numbers a position.
        layers: how many blocks.
        heads: of each block's attention.
        context: the most positions.
    """

    def __init__(self, *, seed: int, width: int = 128, layers: int = 3, heads: int = 4, context: int = 128) -> None:
        super().__init__()
        with drawn_from(seed, torch.device("cpu")):
            self.bytes, self.places = nn.Embedding(BYTES, width), nn.Embedding(context, width)
            self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, BYTES)
            for embedding in (self.bytes, self.places):
                nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of the next byte at every position."""
        places = torch.arange(x.shape[1], device=x.device).expand_as(x)
        logits: Tensor = self.head(self.norm(self.blocks(self.bytes(x) + self.places(places))))
        return logits


@final
class Block(nn.Module):
    """Attention to what came before, then two layers at each position; both are added to what goes by."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.asked, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.out(self._attended(self.asked(self.before(x))))
        narrowed: Tensor = self.narrow(gelu(self.wide(self.between(x))))
        return x + narrowed

    def _attended(self, asked: Tensor) -> Tensor:
        """Query, key and value `[n, t, 3 width]` to the mean of the values that each position looks at."""
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in asked.chunk(3, dim=-1))
        return scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
