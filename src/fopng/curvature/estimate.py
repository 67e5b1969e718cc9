"""Estimates of a model on a task's data: Fishers, second moments of layers, stored gradients. One function for each.

Every one of them works for one run, for data sharded over processes and for replicas: that is its stream's business.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import torch
from torch import Tensor

from fopng.core.batch import Batch, sample_count
from fopng.core.likelihood import Labels, Norm, Score, Signals, draws_labels
from fopng.core.vector import Vector
from fopng.curvature.factor_sums import FactorSums
from fopng.curvature.kronecker import LayerBasis
from fopng.curvature.low_rank import join_rows, leading_combinations, leading_rows, mix_rows, rest_of
from fopng.curvature.moments import InputMoment, Moments
from fopng.curvature.sampling import SampleStream, held_at_most, parameter_like
from fopng.gradients.forms import PLAIN, Form
from fopng.gradients.layers import Names, SampleGradients
from fopng.gradients.per_sample import PerSampleGradients
from fopng.gradients.uses import Use

Key = TypeVar("Key")


def diagonal_fisher(
    source: PerSampleGradients, stream: SampleStream, *, labels: Labels = "observed", samples: int | None = None
) -> Vector:
    """The diagonal of the Fisher, eq. 7: the mean over samples of the squared gradient of `log p(y|x)`.

    Args:
        source: the model.
        stream: the data.
        labels: the data's labels, labels drawn from the model, or the exact expectation over labels.
        samples: how many samples to use, drawn without replacement; None for all.

    >>> from fopng.curvature.sampling import LoaderStream
    >>> source = PerSampleGradients(torch.nn.Linear(3, 2))
    >>> diagonal_fisher(source, LoaderStream([(torch.ones(4, 3), torch.tensor([0, 1, 1, 0]))]))["weight"].shape
    torch.Size([2, 3])
    """
    return _mean_of_gradients(source, stream, labels, samples, SampleGradients.add_squares)


def output_sensitivity(source: PerSampleGradients, stream: SampleStream, *, samples: int | None = None) -> Vector:
    """How much each parameter moves the outputs: the mean over samples of `|d |outputs|^2 / d theta|`; no labels needed."""
    return _mean_of_gradients(source, stream, "squared-norm", samples, SampleGradients.add_absolute)


def _mean_of_gradients(
    source: PerSampleGradients,
    stream: SampleStream,
    kind: Labels | Norm,
    samples: int | None,
    add: Callable[[SampleGradients, dict[str, Tensor]], None],
) -> Vector:
    total: dict[str, Tensor] = {}
    mean = _Mean(stream)
    for chunk in mean.counted(stream.chunks(source, samples, labels=_draws(kind))):
        for gradients in _gradients(source, stream, chunk, kind):
            add(gradients, total)
    return stream.checked(_filled(source, stream, mean.of(total)), "a finite Fisher")


def _draws(kind: Labels | Norm) -> bool:
    return kind != "squared-norm" and draws_labels(kind)


def _gradients(
    source: PerSampleGradients, stream: SampleStream, batch: Batch, kind: Labels | Score | Norm
) -> Iterator[SampleGradients]:
    return source.gradients(batch, kind, parameters=stream.parameters, generator=stream.generator)


class _Mean:
    """Counts the samples of a walk and divides sums by their number."""

    def __init__(self, stream: SampleStream) -> None:
        self._stream, self._count = stream, 0

    def counted(self, chunks: Iterator[Batch]) -> Iterator[Batch]:
        """The batches of a walk."""
        for chunk in chunks:
            self._count += sample_count(chunk, self._stream.axis)
            yield chunk

    def total(self) -> int:
        """The number of samples of all processes."""
        count = self._stream.total(self._count)
        if not count:
            raise ValueError("Expected at least one sample to estimate from, got none.")
        return count

    def of(self, sums: Mapping[Key, Tensor]) -> dict[Key, Tensor]:
        """The means, by the keys of the sums."""
        count = self.total()
        return {key: total / count for key, total in self._stream.sum_named(sums).items()}


def _filled(
    source: PerSampleGradients, stream: SampleStream, named: dict[str, Tensor], without: frozenset[str] = frozenset()
) -> Vector:
    """A Vector with a part for every parameter of the model, zero for those that the data did not reach."""
    like = parameter_like(source, stream.parameters)
    dtype = torch.float32 if like.dtype in (torch.half, torch.bfloat16) else like.dtype
    lead = like.shape[: stream.axis]
    shapes = {name: shape for name, shape in source.layout.shapes.items() if name not in without}
    parts = {
        name: named[name] if name in named else torch.zeros((*lead, *shape), dtype=dtype, device=like.device)
        for name, shape in shapes.items()
    }
    return Vector(parts, stream.axis)


def full_fisher(
    source: PerSampleGradients, stream: SampleStream, *, labels: Labels = "observed", samples: int | None = None
) -> Tensor:
    """The whole Fisher, eq. 1 and 8: the mean of `g g^T`, `[*lead, p, p]`, in the order of `source.layout`. For small models."""
    shapes, like = source.layout.shapes, parameter_like(source, stream.parameters)
    _check_full_size(sum(s.numel() for s in shapes.values()), like.shape[: stream.axis], like.device, stream)
    total: dict[Names, Tensor] = {}
    mean = _Mean(stream)
    for chunk in mean.counted(stream.chunks(source, samples, labels=draws_labels(labels))):
        for gradients in _gradients(source, stream, chunk, labels):
            rows = gradients.rows().filled(shapes)
            whole = rows.flat().mT
            for name, part in rows.parts.items():
                _add(total, (name,), whole @ part.reshape(*part.shape[: rows.lead], -1))
    columns = stream.checked(mean.of(total), "a finite Fisher")
    return torch.cat([columns[name,] for name in shapes], -1)


def _check_full_size(p: int, lead: torch.Size, device: torch.device, stream: SampleStream) -> None:
    limit = held_at_most(device) if stream.memory_limit is None else stream.memory_limit
    if 8 * p * p * lead.numel() > limit:
        raise ValueError(
            f"Expected a full Fisher of at most {limit} bytes, got {8 * p * p * lead.numel()} for {p} parameters. "
            "Use the diagonal Fisher."
        )


def low_rank_fisher(
    source: PerSampleGradients,
    stream: SampleStream,
    rank: int,
    *,
    labels: Labels = "observed",
    samples: int | None = None,
) -> tuple[Vector, Vector]:
    """The Fisher as `diag(d) + U^T U`: d and `U [*lead, rank, *shape]`; the diagonal of the sum is exact.

    Gradients come `rank` at a time; the leading directions are kept, and what falls off them is left to the diagonal. With several
    processes each keeps those of its own samples, then of all of these the leading ones are kept.
    """
    squares: dict[str, Tensor] = {}
    rows = _filled(source, stream, {}).map(
        lambda part: part.new_zeros(*part.shape[: stream.axis], 0, *part.shape[stream.axis :])
    )
    rows = Vector(rows.parts, stream.axis + 1)
    mean = _Mean(stream)
    for chunk in mean.counted(stream.chunks(source, samples, labels=draws_labels(labels), size=rank)):
        for gradients in _gradients(source, stream, chunk, labels):
            gradients.add_squares(squares)
            rows = leading_rows(join_rows(rows, gradients.rows()), rank)
    diagonal = _filled(source, stream, mean.of(squares))
    rows = _leading_of_all(stream, leading_rows(rows, rank)) / mean.total() ** 0.5
    return stream.checked((rest_of(diagonal, rows), rows), "a finite Fisher")


def _leading_of_all(stream: SampleStream, rows: Vector) -> Vector:
    """The leading rows of those of all processes."""
    grams, own, rank = [], 0, rows.replicas[-1]
    for part in rows.parts.values():
        found, own = stream.gather(part.reshape(*part.shape[: rows.lead], -1))
        if len(found) == 1:
            return rows
        everyone = torch.cat(found, -2)
        grams.append(everyone @ everyone.mT)
    mix = leading_combinations(torch.stack(grams).sum(0), rank)[..., own * rank : (own + 1) * rank]
    return mix_rows(mix, rows).map(stream.sum)


def sample_gradients(
    source: PerSampleGradients, stream: SampleStream, count: int, *, score: Score = "ground-truth"
) -> list[SampleGradients]:
    """Gradients of a score of `count` samples drawn without replacement (of all where there are no more), to be stored.

    With several processes each one has all of them, to the same bits.
    """
    found = [
        gradients
        for chunk in stream.chosen(source, count)
        for gradients in source.gradients(chunk, score, parameters=stream.parameters)
    ]
    if not found:
        raise ValueError("Expected at least one sample to store a gradient of, got none.")
    return stream.checked(stream.broadcast(found), "finite gradients")


def layer_moments(
    source: PerSampleGradients,
    stream: SampleStream,
    *,
    signals: Signals | Labels = "normal",
    samples: int | None = None,
) -> Moments:
    """The second moments of every layer of a model on data.

    Args:
        source: the model.
        stream: the data.
        signals: what is sent back from the outputs: noise of variance one, or the score of the data's labels, of labels drawn
            from the model, or of all labels, weighted exactly.
        samples: how many samples to use, drawn without replacement; None for all.

    >>> from fopng.curvature.sampling import LoaderStream
    >>> source = PerSampleGradients(torch.nn.Linear(3, 2))
    >>> moments = layer_moments(source, LoaderStream([(torch.ones(4, 3), torch.tensor([0, 1, 1, 0]))]))
    >>> [(names, own.inputs.shape, own.signals.shape) for names, own in moments.layers.items()]
    [(('weight', 'bias'), torch.Size([4, 4]), torch.Size([2, 2]))]
    """
    sums, mean = FactorSums(stream), _Mean(stream)
    for chunk in mean.counted(stream.chunks(source, samples, labels=draws_labels(signals))):
        walk = source.factors(chunk, signals, parameters=stream.parameters, generator=stream.generator)
        for number, (uses, others) in enumerate(walk):
            sums.see(number, uses, others, sample_count(chunk, stream.axis))
        sums.end_batch()
    layers = sums.layers(mean.of, mean.total())
    rest = _filled(source, stream, mean.of(sums.squares()), frozenset(name for names in layers for name in names))
    return stream.checked(Moments(layers, rest), "finite moments")


def input_moments(
    source: PerSampleGradients, stream: SampleStream, *, samples: int | None = None
) -> dict[Names, InputMoment]:
    """`A = E[sum_t a_t a_t^T]` of every weight of a model on data that is no table; with a bias the last input is a 1."""
    sums: dict[tuple[Names, tuple[int, bool, int]], Tensor] = {}
    mean = _Mean(stream)
    for chunk in mean.counted(stream.chunks(source, samples, labels=False)):
        for use in source.inputs(chunk, parameters=stream.parameters):
            if not use.words:
                form = use.form.groups, use.form.transposed, use.form.split
                rows = use.homogeneous().flatten(-3, -2)
                _add(sums, (use.names, form), rows.mT @ rows)
    found = {names: InputMoment(moment, Form(*form)) for (names, form), moment in mean.of(sums).items()}
    return stream.checked(found, "finite inputs")


def squares_along(
    source: PerSampleGradients,
    stream: SampleStream,
    bases: Mapping[Names, LayerBasis],
    *,
    labels: Labels,
    samples: int | None = None,
) -> dict[Names, Tensor]:
    """The mean square of gradients along the eigenvectors of each layer, `[*lead, o, i]`: the eigenvalues of EKFAC.

    Weights that are used in several ways, or have no factors of their own, are left out.
    """
    sums: dict[Names, Tensor] = {}
    mean = _Mean(stream)
    for chunk in mean.counted(stream.chunks(source, samples, labels=draws_labels(labels))):
        walk = source.factors(chunk, labels, parameters=stream.parameters, generator=stream.generator)
        for uses, _ in walk:
            for use in uses:
                _see_squares(bases, sums, use)
    found = mean.of(sums)
    # zero for a layer that was not reached
    whole = {names: found.get(names, torch.zeros_like(own.values)) for names, own in bases.items() if _corrected(own)}
    return stream.checked(whole, "finite squares of gradients")


def _corrected(basis: LayerBasis) -> bool:
    """Whether the eigenvalues of a layer are corrected: a matrix that a product is made with."""
    return basis.form == PLAIN and basis.inputs is not None and basis.signals is not None


def _see_squares(bases: Mapping[Names, LayerBasis], sums: dict[Names, Tensor], use: Use) -> None:
    if use.names not in bases or use.form != PLAIN or not _corrected(bases[use.names]):
        return
    assert use.d is not None
    h, d = bases[use.names].rotate(use.homogeneous(), use.d)
    # with one position the square of a product is the product of squares
    alone = use.positions == 1
    _add(sums, use.names, d.squeeze(-2).square().mT @ h.squeeze(-2).square() if alone else (d.mT @ h).square().sum(-3))


def _add(sums: dict[Key, Tensor], key: Key, value: Tensor) -> None:
    sums[key] = sums[key] + value if key in sums else value
