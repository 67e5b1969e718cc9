"""Inputs of numbers, drawn again from Gaussians, one for each class and one of all: from moments of a task's samples.

Of each Gaussian the mean is kept, the leading part of the covariance as a factor L (`L^T L`), and what it leaves of the variance of
each number. The factor comes from random mixtures of all samples, so that one walk over the data gives it, whatever the size of an
input. Axes: `...` replicas, `n` sample or draw, `i` number, `c` Gaussian, `k` row of a factor.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import final

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fopng.core.batch import Batch, map_tensors, sample_count, take, tensors_of
from fopng.core.keyed_random import normal, signs, uniform
from fopng.core.layout import wide_dtype
from fopng.core.likelihood import Categorical
from fopng.core.tree import node
from fopng.curvature.sampling import SampleStream
from fopng.gradients.per_sample import PerSampleGradients

DRAWS = 1024
"""Inputs that are drawn for each task."""

FIRST = DRAWS // 4
"""So many of them are of a class; they are measured."""

FITTED = 2000
"""Samples that moments are taken on."""

ROWS = 640
"""Rows of the factors of all classes together."""

MOST_ROWS = 64
"""Rows of a factor at most."""

MIXTURES = 2
"""So many times more mixtures are taken than rows are kept."""

CACHED = 2**24
"""Bytes of draws that are held; more are drawn again each time."""


@node
@final
@dataclass(frozen=True, eq=False)
class GaussianInputs:
    """Numbers drawn from Gaussians: the first draws from that of a class, of later ones every second from the one of all samples.

    The first are measured, since answers to draws of a class change about as much as those to the task's own samples. Later ones
    are rehearsed, and there what lies between the classes counts too.

    Args:
        key: decides the draws, int64 `[...]`.
        form: a batch of one sample: zeros of their precision in place of the numbers, and what all samples share.
        target: which of the tensors holds the classes; None for none.
        labels: the class of each Gaussian; of that of all samples, the last, one of them.
        shares: how likely each Gaussian is, `[..., c]`.
        means: `[..., c, i]`.
        factors: L of each, `[..., c, k, i]`.
        rest: the deviation of each number that L leaves, `[..., c, i]`.
    """

    key: Tensor
    form: Batch
    target: int | None
    labels: Tensor
    shares: Tensor
    means: Tensor
    factors: Tensor
    rest: Tensor

    @property
    def count(self) -> int:
        """How many inputs there are."""
        return DRAWS

    @property
    def lead(self) -> int:
        """The number of replica axes."""
        return self.key.dim()

    def batch(self, rows: Tensor) -> Batch:
        """The inputs of these numbers, int64 `[n]`, in the form of the task's batches."""
        if self._held is None:
            return self._formed(self._drawn(rows), self.labels[self._chosen(rows)])
        numbers, classes = (own.index_select(self.lead, rows) for own in self._held)
        return self._formed(numbers, classes)

    def __getstate__(self) -> dict[str, object]:
        """All but the draws, which can be made again."""
        return {name: own for name, own in vars(self).items() if name != "_held"}

    @cached_property
    def _held(self) -> tuple[Tensor, Tensor] | None:
        """All draws and their classes, where they are not too large."""
        bytes_of_one = self.means[..., :1, :].numel() * self.means.element_size()
        every = torch.arange(DRAWS, device=self.key.device)
        return None if DRAWS * bytes_of_one > CACHED else (self._drawn(every), self.labels[self._chosen(every)])

    def _chosen(self, rows: Tensor) -> Tensor:
        """Of which Gaussian each draw is, int64 `[..., n]`."""
        own = self.shares.double()
        of_class = own if own.shape[-1] == 1 else torch.cat([own[..., :-1], torch.zeros_like(own[..., -1:])], -1)
        shares = torch.where((rows < FIRST).unsqueeze(-1), of_class.unsqueeze(-2), own.unsqueeze(-2)).cumsum(-1)
        below = shares / shares[..., -1:] < uniform(self.key, rows, 1)
        return below.sum(-1).clamp(max=own.shape[-1] - 1)

    def _drawn(self, rows: Tensor) -> Tensor:
        """`mean + z L +- rest`, `[..., n, i]`."""
        z = normal(self.key + 1, rows, self.factors.shape[-2]).to(self.means)
        own = one_hot(self._chosen(rows), self.shares.shape[-1]).to(z)
        spread = (own.unsqueeze(-1) * z.unsqueeze(-2)).flatten(-2)
        return own @ self.means + spread @ self.factors.flatten(-3, -2) + signs(self.key + 2, rows, own @ self.rest)

    def _formed(self, numbers: Tensor, classes: Tensor) -> Batch:
        """Numbers `[..., n, i]` as a batch."""
        axis, n = self.lead, classes.shape[-1]
        sizes = [t.shape[axis + 1 :].numel() for t in numbers_in(self.form, axis)]
        parts, place = iter(numbers.split(sizes, -1)), iter(range(len(tensors_of(self.form))))

        def filled(one: Tensor) -> Tensor:
            if next(place) == self.target:
                # which of several places a class is at nobody knows: the answers are what is rehearsed
                whole = classes.reshape(*classes.shape, *[1] * (one.dim() - axis - 1))
                return whole.expand(*classes.shape, *one.shape[axis + 1 :]).to(one)
            if not per_sample(one, axis, 1):
                return one
            wide = one.expand(*one.shape[:axis], n, *one.shape[axis + 1 :])
            return next(parts).reshape(wide.shape).to(one) if one.is_floating_point() else wide

        return map_tensors(filled, self.form)


def per_sample(tensor: Tensor, axis: int, n: int) -> bool:
    """Whether a tensor of a batch of n samples has a row for each."""
    return tensor.dim() > axis and tensor.shape[axis] == n


def numbers_in(batch: Batch, axis: int) -> list[Tensor]:
    """The tensors of numbers, with a row a sample, of a batch."""
    n = sample_count(batch, axis)
    return [t for t in tensors_of(batch) if per_sample(t, axis, n) and t.is_floating_point()]


@final
class _Sums:
    """Sums over samples by class, from which means and factors follow; nothing of a sample is kept.

    Args:
        key: decides the mixtures, int64 `[...]`.
        classes: how many; 0 where there are none.
    """

    def __init__(self, key: Tensor, classes: int) -> None:
        self.key, self.classes = key, classes
        self.rows = min(ROWS // max(1, classes), MOST_ROWS)
        self.mixtures = MIXTURES * self.rows
        self.sums: dict[str, Tensor] = {}
        self.seen = 0

    def add(self, x: Tensor, labels: Tensor | None) -> None:
        """Add samples `x [..., n, i]` of these classes."""
        n = x.shape[-2]
        z = normal(self.key, self.seen + torch.arange(n, device=self.key.device), self.mixtures).to(x)
        member = x.new_ones(*x.shape[:-1], 1)
        if labels is not None and self.classes:
            member = torch.cat([one_hot(labels.clamp(min=0), self.classes).to(x), member], -1)
        weights = (member.unsqueeze(-1) * z.unsqueeze(-2)).flatten(-2)
        form = *weights.shape[:-2], member.shape[-1], self.mixtures
        found = {
            "counts": member.sum(-2),
            "totals": member.mT @ x,
            "squares": member.mT @ x.square(),
            "mixed": (weights.mT @ x).reshape(*form, x.shape[-1]),
            "weights": weights.sum(-2).reshape(form),
        }
        self.sums = {name: own + self.sums[name] if self.seen else own for name, own in found.items()}
        self.seen += n

    def moments(self, stream: SampleStream) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Labels, shares, means, factors and what these leave, of the samples of all processes."""
        found = stream.sum_named(self.sums)
        # classes that are not there need no room
        there = found["counts"].reshape(-1, found["counts"].shape[-1]).amax(0).nonzero().flatten()
        axis = found["counts"].dim() - 1
        found = {name: own.index_select(axis, there) for name, own in found.items()}
        n = found["counts"].clamp(min=1)
        means = found["totals"] / n.unsqueeze(-1)
        centred = found["mixed"] - found["weights"].unsqueeze(-1) * means.unsqueeze(-2)
        factors = _leading(centred / (n * self.mixtures).sqrt()[..., None, None], self.rows)
        variance = found["squares"] / n.unsqueeze(-1) - means.square()
        rest = (variance - factors.square().sum(-2)).clamp(min=0).sqrt()
        labels = torch.where(there < self.classes, there, there[0])
        return labels, found["counts"] / found["counts"].sum(-1, keepdim=True), means, factors, rest


def _leading(rows: Tensor, count: int) -> Tensor:
    """The rows along the leading directions of rows, `[..., m, i] -> [..., count, i]`, in a sign of its own."""
    wide = rows.double()
    vectors: Tensor = torch.linalg.eigh(wide @ wide.mT)[1]
    mix = vectors[..., -count:].mT
    side = torch.where(mix.sum(-1, keepdim=True) < 0, -1.0, 1.0)
    leading: Tensor = side * (mix @ wide)
    return leading.to(rows)


def fit_gaussians(source: PerSampleGradients, stream: SampleStream, key: Tensor) -> GaussianInputs:
    """Take the moments of a task's inputs, on some of its samples.

    Args:
        source: the model, which tells the targets.
        stream: the data.
        key: decides the mixtures and the draws, int64 `[...]`.
    """
    axis, own = stream.axis, stream.gather(key)[1]
    sums, form, target = None, None, None
    for chunk in stream.chunks(source, FITTED, labels=False):
        outputs, targets = source.answers(chunk, parameters=stream.parameters)
        if sums is None:
            form, target = take(chunk, torch.arange(1), axis), _place(chunk, targets)
            # mixtures of their own in every process
            sums = _Sums(key + 2 + own, _classes_of(source, outputs, targets, axis))
        x = torch.cat([t.reshape(*t.shape[: axis + 1], -1) for t in numbers_in(chunk, axis)], -1).to(outputs.device)
        sums.add(x.to(wide_dtype([x])), targets)
    if sums is None:
        raise ValueError("Expected samples of the task that ends, got none. Pass its training data.")
    blank = map_tensors(lambda t: torch.zeros_like(t) if t.is_floating_point() else t, form)
    labels, *moments = sums.moments(stream)
    return GaussianInputs(key, blank, target, labels, *stream.checked(moments, "finite inputs"))


def _classes_of(source: PerSampleGradients, outputs: Tensor, targets: Tensor | None, axis: int) -> int:
    """How many classes have a Gaussian of their own; 0 where there are none, or too many."""
    known = isinstance(source.likelihood, Categorical) and targets is not None and outputs.dim() == axis + 2
    return outputs.shape[-1] if known and outputs.shape[-1] <= ROWS // 4 else 0


def _place(batch: Batch, targets: Tensor | None) -> int | None:
    """Which tensor of a batch is the targets."""
    found = [number for number, tensor in enumerate(tensors_of(batch)) if is_targets(tensor, targets)]
    return found[0] if found else None


def is_targets(tensor: Tensor, targets: Tensor | None) -> bool:
    """Whether a tensor of whole numbers is that of the targets."""
    if targets is None or tensor.is_floating_point() or tensor.shape != targets.shape:
        return False
    return bool((tensor == targets.to(tensor.device)).all())
