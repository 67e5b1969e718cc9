"""Estimating the Fisher information of a model on data, and drawing the samples whose gradients are stored."""

from collections.abc import Iterable, Iterator
from itertools import chain

import torch
from torch import Tensor

from fopng.likelihood import Labels, Score
from fopng.persample import GradientSource, SampleGradients
from fopng.types import Batch, NotFinite, regroup, sample_count, take

MEMORY_LIMIT = 256 * 2**20
"""Bytes that an estimate may hold at a time, by default."""

_LARGEST_CHUNK = 1024


def diagonal_fisher(
    source: GradientSource,
    batches: Iterable[Batch],
    *,
    labels: Labels = "observed",
    samples: int | None = None,
    generator: torch.Generator | None = None,
    parameters: Tensor | None = None,
    memory_limit: int = MEMORY_LIMIT,
) -> Tensor:
    """The diagonal of the Fisher, eq. 7: the mean over samples of the squared gradient of `log p(y|x)`, `[..., p]`.

    Args:
        source: the model.
        batches: the data; walked more than once.
        labels: the data's labels, labels drawn from the model, or the exact expectation over labels.
        samples: how many samples to use, drawn without replacement; None for all.
        generator: draws the samples, and labels that are "sampled".
        parameters: `[*lead, p]` instead of the model's own, for replicas; the batches then are `[*lead, n, ...]`.
        memory_limit: bytes to hold at a time.

    >>> source = GradientSource(torch.nn.Linear(3, 2))
    >>> diagonal_fisher(source, [(torch.ones(4, 3), torch.tensor([0, 1, 1, 0]))]).shape
    torch.Size([8])
    """
    total: Tensor | None = None
    count = 0
    axis = 0 if parameters is None else parameters.dim() - 1
    for chunk in chunks(source, batches, samples, generator, parameters, memory_limit):
        for gradients in source.gradients(chunk, labels, parameters=parameters, generator=generator):
            total = flat_zeros(source, parameters) if total is None else total
            gradients.add_squares(total)
        count += sample_count(chunk, axis)
    return _mean(source, total, count)


def full_fisher(
    source: GradientSource,
    batches: Iterable[Batch],
    *,
    labels: Labels = "observed",
    samples: int | None = None,
    generator: torch.Generator | None = None,
    parameters: Tensor | None = None,
    memory_limit: int = MEMORY_LIMIT,
) -> Tensor:
    """The whole Fisher, eq. 1 and 8: the mean of `g g^T`, `[..., p, p]`. For small models; arguments as `diagonal_fisher`."""
    lead = torch.Size() if parameters is None else parameters.shape[:-1]
    check_full_size(source.layout.size, lead, memory_limit)
    total: Tensor | None = None
    count = 0
    for chunk in chunks(source, batches, samples, generator, parameters, memory_limit):
        for gradients in source.gradients(chunk, labels, parameters=parameters, generator=generator):
            rows = gradients.dense()
            outer = rows.mT @ rows
            total = outer if total is None else total + outer
        count += sample_count(chunk, len(lead))
    return _mean(source, total, count)


def check_full_size(p: int, lead: torch.Size, memory_limit: int) -> None:
    """Raise where the whole Fisher of p parameters, for these replicas, would be too large."""
    if 8 * p * p * lead.numel() > memory_limit:
        raise ValueError(
            f"Expected a full Fisher of at most {memory_limit} bytes, got {8 * p * p * lead.numel()} for {p} parameters. "
            "Use the diagonal Fisher, or raise memory_limit."
        )


def _mean(source: GradientSource, total: Tensor | None, count: int) -> Tensor:
    if total is None:
        raise ValueError("Expected at least one sample to estimate a Fisher from, got none.")
    broken = source.layout.name_nonfinite(total)
    if broken:
        raise NotFinite(f"Expected a finite Fisher, got NaN or infinity in {broken}. Has the training diverged?")
    return total / count


def stored_gradients(
    source: GradientSource,
    batches: Iterable[Batch],
    count: int,
    *,
    score: Score = "ground-truth",
    generator: torch.Generator | None = None,
    parameters: Tensor | None = None,
) -> list[SampleGradients]:
    """Gradients of a score of `count` samples drawn without replacement (all of them when there are no more).

    Args:
        source: the model.
        batches: the data; walked more than once.
        count: how many.
        score: of what: the true answer's logit, the mean logit or the log-likelihood.
        generator: draws the samples.
        parameters: `[*lead, p]` instead of the model's own, for replicas.
    """
    blocks = [
        gradients
        for chunk in chunks(source, batches, count, generator, parameters, MEMORY_LIMIT)
        for gradients in source.gradients(chunk, score, parameters=parameters)
    ]
    if not blocks:
        raise ValueError("Expected at least one sample to store a gradient of, got none.")
    return blocks


def draw(
    batches: Iterable[Batch], count: int | None, generator: torch.Generator | None, axis: int = 0
) -> Iterator[Batch]:
    """Yield `count` samples drawn uniformly without replacement, in the order of the data; all when `count` is None.

    Args:
        batches: the data; counted first, then walked again.
        count: how many samples.
        generator: draws them.
        axis: the samples' axis.
    """
    check_rewindable(batches)
    if count is None:
        yield from batches
        return
    if count < 1:
        raise ValueError(f"Expected a number of samples of at least 1, got {count}.")
    total = sum(sample_count(batch, axis) for batch in batches)
    device = "cpu" if generator is None else generator.device
    order = torch.randperm(total, generator=generator, device=device)[:count].sort().values.cpu()
    start = 0
    for batch in batches:
        n = sample_count(batch, axis)
        first, last = torch.searchsorted(order, torch.tensor([start, start + n])).tolist()
        if last > first:
            yield take(batch, order[first:last] - start, axis)
        start += n


def check_rewindable(batches: Iterable[Batch]) -> None:
    """Raise for an iterator, which can be walked only once."""
    if isinstance(batches, Iterator):
        raise TypeError(
            f"Expected batches that can be walked more than once (a DataLoader, a list), got a {type(batches).__name__}. "
            "Pass the loader itself, or list(...) of it."
        )


def chunks(
    source: GradientSource,
    batches: Iterable[Batch],
    samples: int | None,
    generator: torch.Generator | None,
    parameters: Tensor | None,
    memory_limit: int = MEMORY_LIMIT,
) -> Iterator[Batch]:
    """The samples to use, in batches as large as the memory allows."""
    axis = 0 if parameters is None else parameters.dim() - 1
    walk = draw(batches, samples, generator, axis)
    first = next(walk, None)
    if first is None:
        return
    bytes_a_sample = source.bytes_per_sample(first, parameters)
    size = min(_LARGEST_CHUNK, max(1, memory_limit // bytes_a_sample))
    yield from regroup(chain([first], walk), size, axis)


def flat_zeros(source: GradientSource, parameters: Tensor | None) -> Tensor:
    """Zeros for every parameter, `[..., p]`, in the precision that gradients are kept in."""
    like = next(p for p in source.model.parameters() if p.requires_grad) if parameters is None else parameters
    dtype = torch.float32 if like.dtype in (torch.half, torch.bfloat16) else like.dtype
    lead = () if parameters is None else parameters.shape[:-1]
    return torch.zeros(*lead, source.layout.size, dtype=dtype, device=like.device)
