"""A character-level transformer that learns two texts, one after the other, and how much of the first it forgets.

    python examples/language_model.py

The texts are generated here: sums written in figures, then palindromes. A sample is a line; its likelihood is that of every
next character, which is `Categorical` over positions; padding counts for nothing.
"""

import random

import torch
import torch.nn.functional as F
from torch import nn

import fopng

ALPHABET = "\n0123456789+=abcdefgh"
LENGTH, PAD = 12, -100


def sums(generator):
    """Lines such as `34+8=42`."""
    a, b = generator.randrange(50), generator.randrange(50)
    return f"{a}+{b}={a + b}"


def palindromes(generator):
    """Lines such as `abcdcba`."""
    half = "".join(generator.choice("abcdefgh") for _ in range(5))
    return half + half[-2::-1]


def make_text(line, count, seed):
    """Inputs and targets [count, LENGTH]: each character and the one after it; padded targets are ignored."""
    generator = random.Random(seed)
    inputs, targets = torch.zeros(count, LENGTH, dtype=torch.long), torch.full((count, LENGTH), PAD)
    for row in range(count):
        codes = [ALPHABET.index(c) for c in "\n" + line(generator) + "\n"]
        inputs[row, : len(codes) - 1] = torch.tensor(codes[:-1])
        targets[row, : len(codes) - 1] = torch.tensor(codes[1:])
    return inputs, targets


class Transformer(nn.Module):
    """Two layers of masked attention over characters."""

    def __init__(self, width=32):
        super().__init__()
        self.characters = nn.Embedding(len(ALPHABET), width)
        self.places = nn.Parameter(torch.randn(LENGTH, width) / width**0.5)
        layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, len(ALPHABET))
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, text):
        """Logits of the next character [n, LENGTH, characters]."""
        return self.head(self.layers(self.characters(text) + self.places, mask=self.mask, is_causal=True))


def loss(model, text):
    """The mean loss a character."""
    return F.cross_entropy(model(text[0]).flatten(0, 1), text[1].flatten(), ignore_index=PAD)


def learn(make_optimizer):
    """Learn sums, then palindromes; return the loss on each at the end."""
    torch.manual_seed(0)
    model = Transformer()
    optimizer = make_optimizer(model)
    texts = [make_text(line, 480, seed=1) for line in (sums, palindromes)]
    for task, (inputs, targets) in enumerate(texts):
        batches = list(zip(inputs.split(16), targets.split(16), strict=True))
        optimizer.begin_task(task)
        for _ in range(6 if task == 0 else 2):
            optimizer.refresh(batches)
            for batch in batches:
                optimizer.zero_grad()
                loss(model, batch).backward()
                optimizer.step()
        if task == 0:
            print(f"  after the sums alone: {loss(model, make_text(sums, 200, seed=2)):.2f} on sums")
        optimizer.end_task(batches)
    with torch.no_grad():
        return [loss(model, make_text(line, 200, seed=2)).item() for line in (sums, palindromes)]


if __name__ == "__main__":
    first = lambda model: torch.optim.Adam(model.parameters(), lr=3e-3)  # noqa: E731
    methods = {
        "Adam": lambda model: fopng.Adam(model, lr=1e-3, first_task=first(model)),
        "FOPNG": lambda model: fopng.FOPNG(
            model, lr=1e-2, projection="orthogonal", gradients_per_task=240, fisher_samples=64, first_task=first(model)
        ),
    }
    for name, make_optimizer in methods.items():
        print(name)
        old, new = learn(make_optimizer)
        print(
            f"  after the palindromes: {old:.2f} on sums, {new:.2f} on palindromes (loss a character, lower is better)"
        )
