"""Texts that a causal language model writes: what it remembers itself by, without any old data."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fopng.core.batch import Batch, join, map_tensors, sample_count, take, tensors_of
from fopng.gradients.per_sample import PerSampleGradients
from fopng.gradients.tracing import undisturbed

AT_A_TIME = 64
"""Texts that are written side by side."""


def write_texts(source: PerSampleGradients, batch: Batch, count: int, seed: int) -> Batch:
    """Texts in the form of a task's batches: each begins with the first token of one of its samples, the model writes the rest.

    Args:
        source: a model whose outputs at a position say what the next token is.
        batch: some samples, whose tokens are the first tensor `[n, t]`; other tensors of that shape are the same tokens, the
            tokens one place on (targets), or a mask.
        count: how many texts.
        seed: of what is drawn.
    """
    every = take(batch, torch.arange(count) % sample_count(batch))
    parts = [take(every, rows) for rows in torch.arange(count).split(AT_A_TIME)]
    return join([_written(source, part, seed + number) for number, part in enumerate(parts)])


def _written(source: PerSampleGradients, few: Batch, seed: int) -> Batch:
    """These samples with other tokens, but for the first."""
    tokens = _tokens(few)
    roles = [_role(t, tokens) for t in tensors_of(few)]

    def formed(written: Tensor, end: int) -> Batch:
        given = iter(roles)
        return map_tensors(lambda t: next(given)(t, written, end), few)

    length = tokens.shape[1]
    if hasattr(source.model, "generate"):
        return formed(_generated(source.model, tokens[:, :1], length, seed), length)
    # where predict leaves the last position out, one more token is needed for the outputs at the one before
    short = length - source.answers(take(few, torch.arange(1)))[0].shape[1]
    generator, written = torch.Generator().manual_seed(seed), tokens
    for place in range(1, length + 1 - short):
        outputs = source.answers(formed(written, place + short))[0]
        p = outputs[:, place - 1].float().softmax(-1).cpu()
        drawn = torch.multinomial(p, 1, generator=generator).to(tokens)
        written = torch.cat([written[:, :place], drawn, written[:, place + 1 :]], 1)
    return formed(written, length)


def _generated(model: Any, first: Tensor, length: int, seed: int) -> Tensor:
    """Texts that a model of transformers writes, which does not read all that it has written again for each token."""
    with undisturbed(model):
        torch.manual_seed(seed)
        device = next(model.parameters()).device
        found: Tensor = model.generate(
            input_ids=first.to(device),
            attention_mask=torch.ones_like(first, device=device),
            do_sample=True,
            top_k=0,
            top_p=1.0,
            temperature=1.0,
            # one more, which may be a target
            min_new_tokens=length,
            max_new_tokens=length,
            pad_token_id=0,
        )
    return found.detach().to(first.device)


Role = Callable[[Tensor, Tensor, int], Tensor]
"""A tensor of the samples `t`, the texts written, and where they end: the tensor for these texts."""


def _tokens(batch: Batch) -> Tensor:
    found = [t for t in tensors_of(batch) if t.dim() == 2 and not t.is_floating_point()]
    if not found:
        raise ValueError(
            "Expected tokens [samples, positions] for a model that writes its own texts, got none. Pass probe=."
        )
    return found[0]


def _role(tensor: Tensor, tokens: Tensor) -> Role:
    """What a tensor of the samples is to their tokens."""
    if tensor.shape != tokens.shape:
        if tensor.dim() and len(tensor) == len(tokens) and bool((tensor != tensor[:1]).any()):
            raise ValueError(
                f"Expected tokens and what belongs to them, got a tensor {list(tensor.shape)} that differs from text to text. Pass "
                "probe=, a function draw(n) -> batch."
            )
        return lambda t, _written, _end: t
    if tensor is tokens or _agree(tensor, tokens):
        return lambda t, written, end: written[:, :end].to(t)
    if _agree(tensor[:, :-1], tokens[:, 1:]):
        return lambda t, written, end: written[:, 1 : end + 1].to(t)
    if bool((tensor == tensor[:1]).all()):
        return lambda t, _written, end: t[:, :end]
    if bool(((tensor == 0) | (tensor == 1)).all()):
        # a mask: there is no padding in what is written
        return lambda t, _written, end: torch.ones_like(t[:, :end])
    raise ValueError(
        "Expected tokens, the same tokens as targets (one place on or not) and masks, got another tensor of their shape. Pass "
        "probe=, a function draw(n) -> batch."
    )


def _agree(tensor: Tensor, tokens: Tensor) -> bool:
    """Whether they are the same wherever the tensor is a token (targets that count for nothing are negative)."""
    return bool(((tensor == tokens) | (tensor < 0)).all())
