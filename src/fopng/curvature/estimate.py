"""Estimating the Fisher information of a model on data, and drawing the samples whose gradients are stored."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import accumulate, chain

import torch
from torch import Tensor

from fopng.core.batch import Batch, NotFinite, regroup, sample_count, take
from fopng.core.likelihood import Labels, Score, draws_labels
from fopng.gradients.per_sample import GradientSource, SampleGradients
from fopng.parallel.collectives import ALONE, Peers
from fopng.parallel.sharded_sampling import Deal, dealt_out

MEMORY_LIMIT = 256 * 2**20
"""Bytes that an estimate may hold at a time, by default and at least; on a GPU up to a 64th of its memory."""

_LARGEST_CHUNK = 1024
"""Samples at a time on a CPU, whose caches hold no more; on a GPU what counts is that there are few chunks to start."""


def diagonal_fisher(
    source: GradientSource,
    batches: Iterable[Batch],
    *,
    labels: Labels = "observed",
    samples: int | None = None,
    generator: torch.Generator | None = None,
    parameters: Tensor | None = None,
    memory_limit: int | None = None,
    peers: Peers = ALONE,
) -> Tensor:
    """The diagonal of the Fisher, eq. 7: the mean over samples of the squared gradient of `log p(y|x)`, `[..., p]`.

    Args:
        source: the model.
        batches: the data; walked more than once.
        labels: the data's labels, labels drawn from the model, or the exact expectation over labels.
        samples: how many samples to use, drawn without replacement; None for all.
        generator: draws the samples, and labels that are "sampled".
        parameters: `[*lead, p]` instead of the model's own, for replicas; the batches then are `[*lead, n, ...]`.
        memory_limit: bytes to hold at a time; None for `held_at_most`.
        peers: the processes that have a shard of the data each.

    >>> source = GradientSource(torch.nn.Linear(3, 2))
    >>> diagonal_fisher(source, [(torch.ones(4, 3), torch.tensor([0, 1, 1, 0]))]).shape
    torch.Size([8])
    """
    deal = Deal(generator, peers, labels=draws_labels(labels))
    total, count = flat_zeros(source, parameters), 0
    axis = 0 if parameters is None else parameters.dim() - 1
    for chunk in chunks(source, batches, samples, deal, parameters, memory_limit):
        for gradients in source.gradients(chunk, labels, parameters=parameters, generator=deal):
            gradients.add_squares(total)
        count += sample_count(chunk, axis)
    return _mean(source, total, count, peers)


def output_sensitivity(
    source: GradientSource,
    batches: Iterable[Batch],
    *,
    samples: int | None = None,
    generator: torch.Generator | None = None,
    memory_limit: int | None = None,
    peers: Peers = ALONE,
) -> Tensor:
    """How much each parameter moves the answers: the mean over samples of `|d |outputs|^2 / d theta|`, `[p]`; no labels needed.

    Args:
        source: the model.
        batches: the data; walked more than once.
        samples: how many samples to use, drawn without replacement; None for all.
        generator: draws the samples.
        memory_limit: bytes to hold at a time; None for `held_at_most`.
        peers: the processes that have a shard of the data each.
    """
    total, count = flat_zeros(source, None), 0
    for chunk in chunks(source, batches, samples, Deal(generator, peers, labels=False), None, memory_limit):
        for gradients in source.gradients(chunk, "squared-norm"):
            gradients.add_absolute(total)
        count += sample_count(chunk)
    return _mean(source, total, count, peers)


def full_fisher(
    source: GradientSource,
    batches: Iterable[Batch],
    *,
    labels: Labels = "observed",
    samples: int | None = None,
    generator: torch.Generator | None = None,
    parameters: Tensor | None = None,
    memory_limit: int | None = None,
    peers: Peers = ALONE,
) -> Tensor:
    """The whole Fisher, eq. 1 and 8: the mean of `g g^T`, `[..., p, p]`. For small models; arguments as `diagonal_fisher`."""
    lead = torch.Size() if parameters is None else parameters.shape[:-1]
    p = source.layout.size
    check_full_size(p, lead, parameter_device(source, parameters), memory_limit)
    deal = Deal(generator, peers, labels=draws_labels(labels))
    total, count = flat_zeros(source, parameters).new_zeros(*lead, p, p), 0
    for chunk in chunks(source, batches, samples, deal, parameters, memory_limit):
        for gradients in source.gradients(chunk, labels, parameters=parameters, generator=deal):
            rows = gradients.dense()
            total += rows.mT @ rows
        count += sample_count(chunk, len(lead))
    return _mean(source, total, count, peers)


def check_full_size(p: int, lead: torch.Size, device: torch.device, memory_limit: int | None = None) -> None:
    """Raise where the whole Fisher of p parameters, for these replicas, would be too large."""
    limit = held_at_most(device) if memory_limit is None else memory_limit
    if 8 * p * p * lead.numel() > limit:
        raise ValueError(
            f"Expected a full Fisher of at most {limit} bytes, got {8 * p * p * lead.numel()} for {p} parameters. "
            "Use the diagonal Fisher, or raise memory_limit."
        )


def _mean(source: GradientSource, total: Tensor, count: int, peers: Peers) -> Tensor:
    total, count = peers.sum(total), peers.total(count)
    if not count:
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
    peers: Peers = ALONE,
    turn: int = 0,
) -> list[SampleGradients]:
    """Gradients of a score of `count` samples drawn without replacement (all of them when there are no more).

    Args:
        source: the model.
        batches: the data; walked more than once.
        count: how many.
        score: of what: the true answer's logit, the mean logit or the log-likelihood.
        generator: draws the samples.
        parameters: `[*lead, p]` instead of the model's own, for replicas.
        peers: the processes that have a shard of the data each; they share the samples out, so that each has its part.
        turn: which of them is the first.
    """
    deal = Deal(generator, peers, labels=False)
    blocks = [
        gradients
        for chunk in chunks(source, batches, count, deal, parameters, turn=turn)
        for gradients in source.gradients(chunk, score, parameters=parameters)
    ]
    if peers.count > 1:
        # where there are more processes than samples: of one sample, nothing
        blocks = blocks or [_none_of(gradients) for gradients in source.gradients(_first_sample(batches), score)]
        ends = list(accumulate(block.count for block in blocks))
        blocks = [
            replace(b, rows=deal.places[end - b.count : end].tolist()) for b, end in zip(blocks, ends, strict=True)
        ]
    if not blocks:
        raise ValueError("Expected at least one sample to store a gradient of, got none.")
    return blocks


def _first_sample(batches: Iterable[Batch]) -> Batch:
    return take(next(batch for batch in batches if sample_count(batch)), torch.tensor([0]))


def _none_of(gradients: SampleGradients) -> SampleGradients:
    """The same layers with no gradients."""
    nothing = torch.empty(0, dtype=torch.int64)
    layers = {names: layer.select(nothing) for names, layer in gradients.layers.items()}
    return SampleGradients(gradients.layout, layers, 0)


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
    yield from Deal(generator, ALONE, labels=False).choose(batches, count, axis)


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
    deal: Deal,
    parameters: Tensor | None,
    memory_limit: int | None = None,
    *,
    turn: int | None = None,
) -> Iterator[Batch]:
    """The samples to use of this process, in batches as large as the memory allows.

    Args:
        source: the model.
        batches: the data of this process; walked more than once.
        samples: how many to use, of all processes together; None for all.
        deal: draws them.
        parameters: of replicas.
        memory_limit: bytes to hold at a time; None for `held_at_most`.
        turn: the process that is first when the samples that are drawn are shared out evenly; None: each stays where it is.
    """
    check_rewindable(batches)
    axis = 0 if parameters is None else parameters.dim() - 1
    walk = deal.choose(batches, samples, axis)
    walk = walk if turn is None else dealt_out(walk, deal, turn)
    first = next(walk, None)
    if first is not None:
        device = parameter_device(source, parameters)
        size = chunk_size(source.bytes_per_sample(first, parameters), device, memory_limit)
        yield from regroup(chain([first], walk), size, axis)
    deal.settle()


def held_at_most(device: torch.device, lanes: int = 1) -> int:
    """Bytes that an estimate holds at a time, unless it is told otherwise.

    Args:
        device: where.
        lanes: pieces of work that have the device at the same time; each leaves most of its part for what it keeps.
    """
    if device.type != "cuda":
        return MEMORY_LIMIT
    return max(MEMORY_LIMIT, torch.cuda.get_device_properties(device).total_memory // max(64, 16 * lanes))


def chunk_size(bytes_a_sample: int, device: torch.device, memory_limit: int | None = None) -> int:
    """How many samples to work on at a time.

    >>> chunk_size(2**20, torch.device("cpu")), chunk_size(2**20, torch.device("cpu"), memory_limit=10)
    (256, 1)

    Args:
        bytes_a_sample: what one holds, of all replicas.
        device: where.
        memory_limit: bytes to hold at a time; None for `held_at_most`.
    """
    limit = held_at_most(device) if memory_limit is None else memory_limit
    fitting = max(1, limit // bytes_a_sample)
    return fitting if device.type == "cuda" else min(_LARGEST_CHUNK, fitting)


def parameter_device(source: GradientSource, parameters: Tensor | None) -> torch.device:
    """Where a model's parameters are, or those given instead."""
    return _like(source, parameters).device


def _like(source: GradientSource, parameters: Tensor | None) -> Tensor:
    return next(p for p in source.model.parameters() if p.requires_grad) if parameters is None else parameters


def flat_zeros(source: GradientSource, parameters: Tensor | None) -> Tensor:
    """Zeros for every parameter, `[..., p]`, in the precision that gradients are kept in."""
    like = _like(source, parameters)
    dtype = torch.float32 if like.dtype in (torch.half, torch.bfloat16) else like.dtype
    lead = () if parameters is None else parameters.shape[:-1]
    return torch.zeros(*lead, source.layout.size, dtype=dtype, device=like.device)
