"""All uses of one weight in a batch: what it was multiplied with at every position, and what came back there."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, final

import torch
import torch.nn.functional as F
from torch import Tensor

from fopng.gradients.axes import Axes, at_least_single, samples_first
from fopng.gradients.capture import Site, SiteCall
from fopng.gradients.forms import Form
from fopng.gradients.layers import Names
from fopng.gradients.places import Place
from fopng.gradients.rules import ConvRule, FactoredRule, LookupRule, Unsupported

Arrival: TypeAlias = tuple[SiteCall, Tensor | None]
"""A call, and the score's derivative at its output; None where nothing is asked about that."""


@final
@dataclass(frozen=True, eq=False)
class Use:
    """The gradient of a weight is `sum_t d_t a_t^T` for each sample, of its bias `sum_t b_t d_t`.

    Args:
        names: the weight, and the bias if there is one.
        form: how the weight is read as a matrix.
        a: its inputs, `[*lead, (groups,) n, t, i]`; of a table the rows that were looked up, `[*lead, n, t]`.
        d: the signals, `[*lead, (groups,) n, t, o]`; None where nothing is asked about them.
        ones: b, 1 where the bias was added and 0 where not, `[*lead, (groups,) n, t]`.
        words: the rows of the table; 0 for what is no table.
        lead: the number of replica axes, and one for groups.
        places: whether the positions are places of an image.
    """

    names: Names
    form: Form
    a: Tensor
    d: Tensor | None
    ones: Tensor | None
    words: int
    lead: int
    places: bool

    @property
    def positions(self) -> int:
        """How many there are in a sample, t."""
        return self.a.shape[self.lead + 1]

    def homogeneous(self) -> Tensor:
        """The inputs with what the bias is multiplied with as the last one."""
        return self.a if self.ones is None else torch.cat([self.a, self.ones.unsqueeze(-1).to(self.a)], -1)

    def signalled(self) -> Tensor:
        """The positions to which anything came back, `[*lead, (groups,) n, t]`: not padding."""
        assert self.d is not None
        return (self.d != 0).any(-1)

    def squared_lengths(self) -> Tensor:
        """The sum over samples of `|sum_t d_t a_t^T|^2`, `[*lead]`."""
        assert self.d is not None
        d, t = self.d, self.positions
        if self.words:
            alike = self.a.unsqueeze(-1) == self.a.unsqueeze(-2)
            return ((d @ d.mT) * alike).flatten(self.lead).sum(-1)
        a = self.homogeneous()
        small = t * (a.shape[-1] + d.shape[-1]) <= a.shape[-1] * d.shape[-1]
        squares = (a @ a.mT) * (d @ d.mT) if small else (d.mT @ a).square()
        found = squares.flatten(self.lead).sum(-1)
        return found.sum(-1) if self.form.groups > 1 else found

    def joined(self, other: "Use", axis: int) -> "Use":
        """Two uses of the same weight as one, along an axis."""
        names = max(self.names, other.names, key=len)
        ones = None if len(names) == 1 else torch.cat([self._ones(), other._ones()], axis)
        d = None if self.d is None or other.d is None else torch.cat([self.d, other.d], axis)
        return replace(self, names=names, a=torch.cat([self.a, other.a], axis), d=d, ones=ones)

    def _ones(self) -> Tensor:
        return self.a.new_zeros(self.a.shape[:-1]) if self.ones is None else self.ones


def uses_of(arrivals: Sequence[Arrival], axes: Sequence[Axes | None], lead: int, n: int) -> Iterator[Use]:
    """The uses of all weights whose gradients have factors, those of one weight and one form together.

    Args:
        arrivals: calls, and what came back.
        axes: where the samples of each call are; None where that is not known, and each row counts for itself.
        lead: the number of replica axes.
        n: the number of samples.
    """
    found: dict[object, Use] = {}
    for (call, signal), where in zip(arrivals, axes, strict=True):
        use = _use(call, signal, where, lead, n)
        if use is None:
            continue
        key: tuple[object, ...] = (use.names[0], use.form, use.words, where is None)
        old = found.get(key)
        if old is not None and len({*old.names[1:], *use.names[1:]}) > 1:
            use = replace(use, names=use.names[:1], ones=None)
        # rows that are samples of their own are more samples, others more positions
        found[key] = use if old is None else old.joined(use, use.lead + (where is not None))
    yield from found.values()


def _use(call: SiteCall, signal: Tensor | None, axes: Axes | None, lead: int, n: int) -> Use | None:
    site = call.site
    place = site.weight
    if place is None:
        return None
    if isinstance(site.rule, LookupRule):
        return _lookup(site.rule, place, call, signal, axes, lead, n)
    form = site.rule.form(place) if isinstance(site.rule, FactoredRule) else None
    if form is None or not isinstance(site.rule, FactoredRule):
        return None
    rule = site.rule
    where = axes or (0, 0)
    a = _positions(call.record, where[0], rule.inputs, lead, n, grouped=form.groups > 1)
    d = None if signal is None else _positions(signal, where[1], rule.signals, lead, n, grouped=form.groups > 1)
    if axes is None:
        a, d = _each_alone(a), None if d is None else _each_alone(d)
    (o, i), (o_first, i_first) = _block(place, form)
    if form.groups == 1 and len(place.size) == 2:
        a = F.pad(a, (i_first, i - i_first - a.shape[-1]))
        d = None if d is None else F.pad(d, (o_first, o - o_first - d.shape[-1]))
    biased = rule.biased and _bias_fits(site, o_first)
    names = site.names if biased else (place.name,)
    ones = a.new_ones(()).expand(a.shape[:-1]) if len(names) > 1 else None
    return Use(names, form, a, d, ones, 0, lead + (form.groups > 1), isinstance(rule, ConvRule))


def _block(place: Place, form: Form) -> tuple[tuple[int, int], tuple[int, int]]:
    """The size of the whole matrix `M [o, i]`, and where the block lies in it."""
    rows, columns = place.shape[: form.split].numel(), place.shape[form.split :].numel()
    corner = place.corner()
    first = (0, 0) if corner is None else corner[:2]
    return ((columns, rows), (first[1], first[0])) if form.transposed else ((rows, columns), first)


def _bias_fits(site: Site, first: int) -> bool:
    """Whether the bias belongs to the rows that the weight has."""
    return site.bias is None or (len(site.bias.shape) == 1 and site.bias.offset == first)


def _lookup(
    rule: LookupRule, place: Place, call: SiteCall, signal: Tensor | None, axes: Axes | None, lead: int, n: int
) -> Use | None:
    if place.strides is not None or len(place.shape) != 2:
        return None
    where = axes or (0, 0)
    rows = samples_first(call.record, where[0], lead, n).flatten(lead + 1)
    d = None
    if signal is not None:
        first = samples_first(signal, where[1], lead, n)
        d = at_least_single(first.reshape(*rows.shape, first.shape[-1]))
        if rule.padding is not None:
            d = d * (rows != rule.padding).unsqueeze(-1)
    if axes is None:
        rows, d = rows.flatten(lead).unsqueeze(-1), None if d is None else d.flatten(lead, -2).unsqueeze(-2)
    return Use((place.name,), Form(transposed=True), rows, d, None, rule.words, lead, places=False)


def _positions(tensor: Tensor, axis: int | None, factor: object, lead: int, n: int, *, grouped: bool) -> Tensor:
    """One factor of a call, `[*lead, (groups,) n, t, k]`."""
    if axis is None or not callable(factor):
        raise Unsupported
    first = at_least_single(samples_first(tensor, axis, lead, n))
    front = first.shape[: lead + 1]
    rows: Tensor = factor(first.flatten(0, lead + 1 if axis < 0 else lead))
    if grouped:
        rows = rows.reshape(*front, -1, *rows.shape[1:])
        return rows.movedim(lead + 2, lead).flatten(lead + 2, lead + 3)
    return rows.reshape(*front, -1, rows.shape[-1])


def _each_alone(factor: Tensor) -> Tensor:
    """Every position of every sample as a sample of its own."""
    return factor.flatten(-3, -2).unsqueeze(-2)
